package dev.loupe;

import dev.loupe.kernels.FirstContact;
import dev.loupe.kernels.VerdictChoice;
import dev.loupe.weights.Activation;
import java.nio.file.Path;
import java.util.Map;
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
 * @param adapter the folder of a LoRA adapter, which is merged with the model
 * @param gpt2Tokenizer the folder of GPT-2's own tokenizer, for checkpoints that were trained with
 *     it and come without
 * @param textRequired whether a model is refused whose tokenizer is missing or can't be used;
 *     otherwise it takes token ids alone, and a note says why
 * @param kernels name of the variant to use on a GPU, by family of kernels, whatever first contact
 *     found of it and wherever it takes the shape; the others are chosen by what was found
 * @param firstContact hears when the kernels are tested on a card, once
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
    Optional<Path> adapter,
    Optional<Path> gpt2Tokenizer,
    boolean textRequired,
    Map<String, String> kernels,
    FirstContact.Listener firstContact) {
  public Options {
    kernels = Map.copyOf(kernels);
    kernels.forEach(VerdictChoice::requireKnown);
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
        Backend.AUTO,
        0,
        Precision.F32,
        Gemm.AUTO,
        0,
        0,
        false,
        Optional.empty(),
        Optional.empty(),
        Optional.empty(),
        false,
        Map.of(),
        FirstContact.Listener.NONE);
  }

  public Options backend(Backend backend) {
    return new Options(
        backend,
        device,
        precision,
        gemm,
        threads,
        vectorBits,
        hash,
        activation,
        adapter,
        gpt2Tokenizer,
        textRequired,
        kernels,
        firstContact);
  }

  public Options device(int device) {
    return new Options(
        backend,
        device,
        precision,
        gemm,
        threads,
        vectorBits,
        hash,
        activation,
        adapter,
        gpt2Tokenizer,
        textRequired,
        kernels,
        firstContact);
  }

  public Options precision(Precision precision) {
    return new Options(
        backend,
        device,
        precision,
        gemm,
        threads,
        vectorBits,
        hash,
        activation,
        adapter,
        gpt2Tokenizer,
        textRequired,
        kernels,
        firstContact);
  }

  public Options gemm(Gemm gemm) {
    return new Options(
        backend,
        device,
        precision,
        gemm,
        threads,
        vectorBits,
        hash,
        activation,
        adapter,
        gpt2Tokenizer,
        textRequired,
        kernels,
        firstContact);
  }

  public Options threads(int threads) {
    return new Options(
        backend,
        device,
        precision,
        gemm,
        threads,
        vectorBits,
        hash,
        activation,
        adapter,
        gpt2Tokenizer,
        textRequired,
        kernels,
        firstContact);
  }

  public Options vectorBits(int vectorBits) {
    return new Options(
        backend,
        device,
        precision,
        gemm,
        threads,
        vectorBits,
        hash,
        activation,
        adapter,
        gpt2Tokenizer,
        textRequired,
        kernels,
        firstContact);
  }

  public Options hash(boolean hash) {
    return new Options(
        backend,
        device,
        precision,
        gemm,
        threads,
        vectorBits,
        hash,
        activation,
        adapter,
        gpt2Tokenizer,
        textRequired,
        kernels,
        firstContact);
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
        adapter,
        gpt2Tokenizer,
        textRequired,
        kernels,
        firstContact);
  }

  public Options adapter(Path folder) {
    return new Options(
        backend,
        device,
        precision,
        gemm,
        threads,
        vectorBits,
        hash,
        activation,
        Optional.of(folder),
        gpt2Tokenizer,
        textRequired,
        kernels,
        firstContact);
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
        adapter,
        Optional.of(folder),
        textRequired,
        kernels,
        firstContact);
  }

  public Options textRequired(boolean textRequired) {
    return new Options(
        backend,
        device,
        precision,
        gemm,
        threads,
        vectorBits,
        hash,
        activation,
        adapter,
        gpt2Tokenizer,
        textRequired,
        kernels,
        firstContact);
  }

  public Options kernels(Map<String, String> kernels) {
    return new Options(
        backend,
        device,
        precision,
        gemm,
        threads,
        vectorBits,
        hash,
        activation,
        adapter,
        gpt2Tokenizer,
        textRequired,
        kernels,
        firstContact);
  }

  public Options firstContact(FirstContact.Listener firstContact) {
    return new Options(
        backend,
        device,
        precision,
        gemm,
        threads,
        vectorBits,
        hash,
        activation,
        adapter,
        gpt2Tokenizer,
        textRequired,
        kernels,
        firstContact);
  }
}
