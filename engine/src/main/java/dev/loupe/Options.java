package dev.loupe;

import dev.loupe.cuda.selftest.FirstContact;
import dev.loupe.cuda.selftest.VerdictChoice;
import dev.loupe.ops.Gemm;
import dev.loupe.ops.Precision;
import dev.loupe.weights.config.Activation;
import java.nio.file.Path;
import java.util.Map;
import java.util.Optional;
import java.util.function.Consumer;

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
 * @param slots texts, each of a whole context, that {@link Loupe#scheduler} shall write at once: on
 *     a GPU, room for them is planned beside the model before it is loaded; 0 for none
 * @param expectedTokens how many tokens the model will read and write in all, about; 0 where nobody
 *     knows. On the CPU short work runs on plain loops: they give the same bits, and Java compiles
 *     them sooner than loops on vectors
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
    int slots,
    long expectedTokens,
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
    if (slots < 0 || slots > 1024) {
      throw new IllegalArgumentException("%d slots: not 0 to 1024".formatted(slots));
    }
    if (expectedTokens < 0) {
      throw new IllegalArgumentException("%d tokens: not 0 or more".formatted(expectedTokens));
    }
    if (vectorBits != 0 && vectorBits != 128 && vectorBits != 256 && vectorBits != 512) {
      throw new IllegalArgumentException(
          "vectors of %d bits: there are 128, 256 and 512".formatted(vectorBits));
    }
  }

  /** The best backend there is, the first GPU, 32-bit floats, all processors. */
  public static Options defaults() {
    return new Draft().options();
  }

  /** With what to run on. */
  public Options backend(Backend backend) {
    return with(draft -> draft.backend = backend);
  }

  /** With a GPU, in the driver's order, from 0. */
  public Options device(int device) {
    return with(draft -> draft.device = device);
  }

  /** With what the weights are computed with. */
  public Options precision(Precision precision) {
    return with(draft -> draft.precision = precision);
  }

  /** With what multiplies the rows of a prompt on a GPU. */
  public Options gemm(Gemm gemm) {
    return with(draft -> draft.gemm = gemm);
  }

  /** With a number of CPU threads; 0 takes one for each processor that the process may use. */
  public Options threads(int threads) {
    return with(draft -> draft.threads = threads);
  }

  /** With a width of the CPU's vectors, 128, 256 or 512; 0 takes what Java prefers. */
  public Options vectorBits(int vectorBits) {
    return with(draft -> draft.vectorBits = vectorBits);
  }

  /** With or without the SHA-256 of the weights. */
  public Options hash(boolean hash) {
    return with(draft -> draft.hash = hash);
  }

  /** With a nonlinearity, whatever the checkpoint says. */
  public Options activation(Activation activation) {
    return with(draft -> draft.activation = Optional.of(activation));
  }

  /** With the folder of a LoRA adapter, which is merged with the model. */
  public Options adapter(Path folder) {
    return with(draft -> draft.adapter = Optional.of(folder));
  }

  /** With the folder of GPT-2's own tokenizer. */
  public Options gpt2Tokenizer(Path folder) {
    return with(draft -> draft.gpt2Tokenizer = Optional.of(folder));
  }

  /** Whether a model without a usable tokenizer is refused. */
  public Options textRequired(boolean textRequired) {
    return with(draft -> draft.textRequired = textRequired);
  }

  /** With texts that shall be written at once. */
  public Options slots(int slots) {
    return with(draft -> draft.slots = slots);
  }

  /** With variants of kernels by the name of their family. */
  public Options kernels(Map<String, String> kernels) {
    return with(draft -> draft.kernels = kernels);
  }

  /** With who hears of the tests of kernels on a card. */
  public Options firstContact(FirstContact.Listener firstContact) {
    return with(draft -> draft.firstContact = firstContact);
  }

  /** With how many tokens the model will read and write in all, about; 0 where nobody knows. */
  public Options expectedTokens(long tokens) {
    return with(draft -> draft.expectedTokens = tokens);
  }

  private Options with(Consumer<Draft> change) {
    Draft draft = new Draft();
    draft.backend = backend;
    draft.device = device;
    draft.precision = precision;
    draft.gemm = gemm;
    draft.threads = threads;
    draft.vectorBits = vectorBits;
    draft.hash = hash;
    draft.activation = activation;
    draft.adapter = adapter;
    draft.gpt2Tokenizer = gpt2Tokenizer;
    draft.textRequired = textRequired;
    draft.slots = slots;
    draft.expectedTokens = expectedTokens;
    draft.kernels = kernels;
    draft.firstContact = firstContact;
    change.accept(draft);
    return draft.options();
  }

  /** The same fields while one of them changes; at first what is taken where nothing is said. */
  private static final class Draft {
    Backend backend = Backend.AUTO;
    int device;
    Precision precision = Precision.F32;
    Gemm gemm = Gemm.AUTO;
    int threads;
    int vectorBits;
    boolean hash;
    Optional<Activation> activation = Optional.empty();
    Optional<Path> adapter = Optional.empty();
    Optional<Path> gpt2Tokenizer = Optional.empty();
    boolean textRequired;
    int slots;
    long expectedTokens;
    Map<String, String> kernels = Map.of();
    FirstContact.Listener firstContact = FirstContact.Listener.NONE;

    Options options() {
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
          slots,
          expectedTokens,
          kernels,
          firstContact);
    }
  }
}
