package dev.loupe;

import dev.loupe.weights.Activation;
import java.nio.file.Path;
import java.util.Optional;

/**
 * How to open a model.
 *
 * @param backend what to run on
 * @param device which GPU, in the driver's order, from 0
 * @param precision what the weights are computed with
 * @param gemm what multiplies the rows of a prompt on a GPU
 * @param threads CPU threads; 0 takes one for each processor that the process may use
 * @param vectorBits width of the CPU's vectors, 128, 256 or 512; 0 takes what Java prefers on this
 *     processor
 * @param hash whether to compute the SHA-256 of the weights, which reads all of them
 * @param activation what the model is run with; empty for what its checkpoint says
 * @param gpt2Tokenizer the folder of GPT-2's own tokenizer, for checkpoints that were trained with
 *     it and come without
 */
public record Options(
    Backend backend,
    int device,
    Precision precision,
    Gemm gemm,
    int threads,
    int vectorBits,
    boolean hash,
    Optional<Activation> activation,
    Optional<Path> gpt2Tokenizer) {
  public Options {
    if (device < 0) {
      throw new IllegalArgumentException("GPU %d: they are numbered from 0".formatted(device));
    }
    if (threads < 0 || threads > 1024) {
      throw new IllegalArgumentException("%d threads: not 0 to 1024".formatted(threads));
    }
    if (vectorBits != 0 && vectorBits != 128 && vectorBits != 256 && vectorBits != 512) {
      throw new IllegalArgumentException(
          "vectors of %d bits: there are 128, 256 and 512".formatted(vectorBits));
    }
  }

  /** The best backend there is, the first GPU, 32-bit floats, all processors. */
  public static Options defaults() {
    return new Options(
        Backend.AUTO, 0, Precision.F32, Gemm.AUTO, 0, 0, false, Optional.empty(), Optional.empty());
  }

  public Options backend(Backend backend) {
    return new Options(
        backend, device, precision, gemm, threads, vectorBits, hash, activation, gpt2Tokenizer);
  }

  public Options device(int device) {
    return new Options(
        backend, device, precision, gemm, threads, vectorBits, hash, activation, gpt2Tokenizer);
  }

  public Options precision(Precision precision) {
    return new Options(
        backend, device, precision, gemm, threads, vectorBits, hash, activation, gpt2Tokenizer);
  }

  public Options gemm(Gemm gemm) {
    return new Options(
        backend, device, precision, gemm, threads, vectorBits, hash, activation, gpt2Tokenizer);
  }

  public Options threads(int threads) {
    return new Options(
        backend, device, precision, gemm, threads, vectorBits, hash, activation, gpt2Tokenizer);
  }

  public Options vectorBits(int vectorBits) {
    return new Options(
        backend, device, precision, gemm, threads, vectorBits, hash, activation, gpt2Tokenizer);
  }

  public Options hash(boolean hash) {
    return new Options(
        backend, device, precision, gemm, threads, vectorBits, hash, activation, gpt2Tokenizer);
  }

  /** Whatever the checkpoint says. */
  public Options activation(Activation activation) {
    return new Options(
        backend,
        device,
        precision,
        gemm,
        threads,
        vectorBits,
        hash,
        Optional.of(activation),
        gpt2Tokenizer);
  }

  public Options gpt2Tokenizer(Path folder) {
    return new Options(
        backend,
        device,
        precision,
        gemm,
        threads,
        vectorBits,
        hash,
        activation,
        Optional.of(folder));
  }
}
