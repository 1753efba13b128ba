package dev.loupe.weights.torch;

import dev.loupe.weights.config.Activation;
import dev.loupe.weights.config.Anchor;
import dev.loupe.weights.config.Gpt2Config;
import dev.loupe.weights.config.Gpt2Layout;
import dev.loupe.weights.format.CheckpointReader;
import dev.loupe.weights.io.CheckpointException;
import dev.loupe.weights.tensor.DType;
import dev.loupe.weights.tensor.DenseData;
import dev.loupe.weights.vocabulary.Vocabulary;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;

/**
 * A checkpoint of nanoGPT ({@code ckpt.pt}): a dict with {@code model}, the tensors, under Hugging
 * Face's names but with matrices [out, in], and {@code model_args}, the config; the optimizer's
 * state beside them is passed over. If a {@code meta.pkl} lies beside the file, the model's tokens
 * are the characters that it lists; if not, they are GPT-2's.
 *
 * <p>Source: {@code model.py}, {@code train.py} and {@code data/shakespeare_char/prepare.py} of
 * karpathy/nanoGPT.
 */
final class NanoGpt {
  private static final String META = "meta.pkl";
  private static final Set<String> LINEAR =
      Set.of("attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj");
  private static final int PADDED = 50304; // rows that train.py gives GPT-2's vocabulary, for speed

  private final TorchFile file;
  private final Map<String, TorchTensor> model;
  private final Map<String, Object> arguments;

  private NanoGpt(TorchFile file, Map<String, TorchTensor> model, Map<String, Object> arguments) {
    this.file = file;
    this.model = model;
    this.arguments = arguments;
  }

  /** The checkpoint in this file, if it is one of nanoGPT. */
  static Optional<NanoGpt> in(TorchFile file) throws CheckpointException {
    Map<String, Object> root = file.root();
    Optional<Map<String, Object>> model = TorchFile.dict(root.get("model"));
    Optional<Map<String, Object>> arguments = TorchFile.dict(root.get("model_args"));
    return model.isPresent() && arguments.isPresent()
        ? Optional.of(new NanoGpt(file, TorchFile.tensors(model.get()), arguments.get()))
        : Optional.empty();
  }

  /**
   * What it holds, in Hugging Face's layout.
   *
   * @param arena keeps the zeros of biases that the model does without
   * @throws CheckpointException if it is damaged, or its meta.pkl is
   */
  CheckpointReader.Contents contents(Arena arena) throws CheckpointException {
    Optional<Vocabulary> vocabulary = vocabulary();
    Gpt2Config config = config(vocabulary.equals(Optional.of(Vocabulary.GPT2)));
    List<CheckpointReader.Entry> entries = new ArrayList<>(PyTorchReader.entries(file, asConv1D()));
    if (Boolean.FALSE.equals(arguments.get("bias"))) {
      addBiases(entries, config, arena);
    }
    return new CheckpointReader.Contents(
        config, entries, List.of(file.file()), vocabulary, List.of(CheckpointReader.ERF_ASSUMED));
  }

  private Optional<Vocabulary> vocabulary() throws CheckpointException {
    Path meta = file.file().path().resolveSibling(META);
    if (Files.exists(meta)) {
      return Optional.of(CharacterVocabulary.read(meta));
    }
    int rows = whole("vocab_size");
    return rows > Gpt2Config.END_OF_TEXT && rows <= PADDED
        ? Optional.of(Vocabulary.GPT2)
        : Optional.empty();
  }

  private Gpt2Config config(boolean isGpt2) throws CheckpointException {
    try {
      return Gpt2Config.openAi(
              whole("n_layer"),
              whole("n_head"),
              whole("n_embd"),
              whole("block_size"),
              whole("vocab_size"),
              isGpt2 ? Gpt2Config.END_OF_TEXT : -1)
          .withActivation(Activation.GELU);
    } catch (IllegalArgumentException e) {
      throw new CheckpointException(
          "%s: its model_args make no sense: %s".formatted(file.file().path(), e.getMessage()), e);
    }
  }

  private int whole(String name) throws CheckpointException {
    if (arguments.get(name) instanceof Long number && number.intValue() == number) {
      return number.intValue();
    }
    throw new CheckpointException(
        "%s: its model_args have no %s that makes sense".formatted(file.file().path(), name));
  }

  private Map<String, TorchTensor> asConv1D() {
    Map<String, TorchTensor> tensors = new LinkedHashMap<>();
    model.forEach(
        (name, tensor) -> tensors.put(name, isLinear(name) ? tensor.transposed() : tensor));
    return tensors;
  }

  private static boolean isLinear(String name) {
    return LINEAR.stream().anyMatch(linear -> name.endsWith("." + linear + ".weight"));
  }

  private void addBiases(List<CheckpointReader.Entry> entries, Gpt2Config config, Arena arena)
      throws CheckpointException {
    Path path = file.file().path();
    Anchor anchor = Anchor.of(entries.stream().map(CheckpointReader.Entry::name).toList(), path);
    Set<String> stored = new HashSet<>();
    entries.forEach(entry -> stored.add(anchor.canonical(entry.name())));
    MemorySegment zeros = DenseData.zeros(4L * config.nEmbd(), arena).stored(); // the longest bias
    Gpt2Layout.shapes(config, false)
        .forEach(
            (name, shape) -> {
              if (name.endsWith(".bias") && !stored.contains(name)) {
                long bytes = shape.getFirst() * DType.F32.bytes();
                entries.add(
                    CheckpointReader.Entry.dense(
                        anchor.prefix() + name, "F32", shape, zeros.asSlice(0, bytes), path));
              }
            });
  }
}
