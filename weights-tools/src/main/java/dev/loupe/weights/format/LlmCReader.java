package dev.loupe.weights.format;

import dev.loupe.weights.config.Gpt2Config;
import dev.loupe.weights.config.Gpt2Layout;
import dev.loupe.weights.io.ByteReader;
import dev.loupe.weights.io.CheckpointException;
import dev.loupe.weights.io.InputFile;
import dev.loupe.weights.tensor.DType;
import dev.loupe.weights.tensor.DenseData;
import dev.loupe.weights.tensor.StridedData;
import dev.loupe.weights.tensor.TensorData;
import dev.loupe.weights.vocabulary.Vocabulary;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;

/**
 * The checkpoints of llm.c, with the tokenizer in a file of its own beside them.
 *
 * <pre>
 * 256 numbers (u32): 20240326, version (3 is F32, 5 BF16), positions T, vocabulary V, layers L,
 *                    heads H, width C, rows of wte (V padded to a multiple of 128), zeros
 * wte [rows, C], wpe [T, C]
 * then of each kind all layers: ln_1 weight, bias; c_attn weight [3C, C], bias; c_proj weight, bias;
 *                    ln_2 weight, bias; c_fc weight [4C, C], bias; c_proj weight [C, 4C], bias
 * ln_f weight, bias
 * </pre>
 *
 * <p>The rows of padding are left out: llm.c's softmax doesn't see them either. Source: {@code
 * write_model} in train_gpt2.py of karpathy/llm.c, and {@code gpt2_write_to_checkpoint} in its
 * train_gpt2.cu.
 */
public final class LlmCReader implements CheckpointReader {
  static final int HEADER_BYTES = 256 * Integer.BYTES;
  private static final int MAGIC = 20240326;
  private static final int STATE_MAGIC = 20240327;

  /** In the order of the file; {@code h.*.} stands for one after the other of all layers. */
  private static final List<String> KINDS =
      List.of(
          "wte.weight",
          "wpe.weight",
          "h.*.ln_1.weight",
          "h.*.ln_1.bias",
          "h.*.attn.c_attn.weight",
          "h.*.attn.c_attn.bias",
          "h.*.attn.c_proj.weight",
          "h.*.attn.c_proj.bias",
          "h.*.ln_2.weight",
          "h.*.ln_2.bias",
          "h.*.mlp.c_fc.weight",
          "h.*.mlp.c_fc.bias",
          "h.*.mlp.c_proj.weight",
          "h.*.mlp.c_proj.bias",
          "ln_f.weight",
          "ln_f.bias");

  @Override
  public List<String> fileNames() {
    return List.of("*.bin");
  }

  @Override
  public boolean recognises(InputFile file) {
    if (file.bytes().byteSize() < Integer.BYTES) {
      return false;
    }
    int magic = file.bytes().get(ByteReader.U32, 0);
    return magic == MAGIC || magic == STATE_MAGIC || magic == LlmCTokenizer.MAGIC;
  }

  @Override
  public Contents read(InputFile file, Arena arena) throws CheckpointException {
    int magic = file.bytes().get(ByteReader.U32, 0);
    if (magic != MAGIC) {
      throw new CheckpointException(
          "%s is llm.c's %s, not its model: give the .bin whose first number is %d"
              .formatted(file.path(), magic == STATE_MAGIC ? "debug state" : "tokenizer", MAGIC));
    }
    long size = file.bytes().byteSize();
    ByteReader header = new ByteReader(file, "the header", Integer.BYTES, size);
    DType dtype = dtypeOf(file, header.u32());
    Optional<LlmCTokenizer> tokenizer = LlmCTokenizer.beside(file.path());
    int positions = header.u32();
    int vocabulary = header.u32();
    int endOfText = tokenizer.map(LlmCTokenizer::endOfText).orElse(Gpt2Config.END_OF_TEXT);
    Gpt2Config config = config(file, header, positions, vocabulary, endOfText);
    long paddedRows = header.u32();
    if (paddedRows < vocabulary) {
      throw new CheckpointException(
          "%s: its header at byte 28 announces %d rows for a vocabulary of %d"
              .formatted(file.path(), paddedRows, vocabulary));
    }
    header.skip(HEADER_BYTES - header.at());
    Map<String, List<Long>> shapes = Gpt2Layout.shapes(config, false);
    long weights = shapes.values().stream().mapToLong(LlmCReader::elements).sum();
    long padding = (paddedRows - vocabulary) * config.nEmbd();
    long expected = HEADER_BYTES + (weights + padding) * dtype.bytes();
    if (size != expected) {
      throw new CheckpointException(
          "%s has %d bytes, but its header (n_layer %d, n_embd %d, %d rows, %s) calls for %d"
              .formatted(
                  file.path(), size, config.nLayer(), config.nEmbd(), paddedRows, dtype, expected));
    }
    return new Contents(
        config,
        tensors(file, config.nLayer(), shapes, paddedRows, dtype),
        List.of(file),
        tokenizer.isEmpty() && vocabulary == Gpt2Config.END_OF_TEXT + 1
            ? Optional.of(Vocabulary.GPT2)
            : tokenizer.map(LlmCTokenizer::vocabulary),
        List.of());
  }

  private static DType dtypeOf(InputFile file, int version) throws CheckpointException {
    return switch (version) {
      case 3 -> DType.F32;
      case 5 -> DType.BF16;
      default ->
          throw new CheckpointException(
              "%s: its header at byte 4 says version %d; readable are 3 (F32) and 5 (BF16)"
                  .formatted(file.path(), version));
    };
  }

  private static Gpt2Config config(
      InputFile file, ByteReader header, int positions, int vocabulary, int endOfText)
      throws CheckpointException {
    int layers = header.u32();
    int heads = header.u32();
    int width = header.u32();
    try {
      return Gpt2Config.openAi(layers, heads, width, positions, vocabulary, endOfText);
    } catch (IllegalArgumentException e) {
      throw new CheckpointException(
          "%s: its header can't be right: %s".formatted(file.path(), e.getMessage()), e);
    }
  }

  private static List<Entry> tensors(
      InputFile file, int nLayer, Map<String, List<Long>> shapes, long paddedRows, DType dtype) {
    List<Entry> tensors = new ArrayList<>(shapes.size());
    long at = HEADER_BYTES;
    for (String kind : KINDS) {
      boolean inLayers = kind.startsWith("h.");
      for (int layer = 0; layer < (inLayers ? nLayer : 1); layer++) {
        String name = kind.replace("*", Integer.toString(layer));
        List<Long> shape = Objects.requireNonNull(shapes.get(name), name);
        long bytes = elements(shape) * dtype.bytes();
        MemorySegment stored = file.bytes().asSlice(at, bytes);
        TensorData data =
            inLayers && shape.size() == 2
                ? StridedData.transposed(dtype, stored, shape.getLast(), shape.getFirst())
                : new DenseData(dtype, stored);
        tensors.add(new Entry(name, dtype.name(), shape, data, file.path()));
        boolean padded = kind.equals("wte.weight");
        at += padded ? paddedRows * shape.getLast() * dtype.bytes() : bytes;
      }
    }
    return tensors;
  }

  private static long elements(List<Long> shape) {
    return shape.stream().reduce(1L, Math::multiplyExact);
  }
}
