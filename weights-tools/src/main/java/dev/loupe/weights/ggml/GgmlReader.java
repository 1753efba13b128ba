package dev.loupe.weights.ggml;

import static java.nio.charset.StandardCharsets.US_ASCII;
import static java.nio.charset.StandardCharsets.UTF_8;

import dev.loupe.weights.config.Gpt2Config;
import dev.loupe.weights.config.Gpt2Layout;
import dev.loupe.weights.format.CheckpointReader;
import dev.loupe.weights.format.TensorFlowReader;
import dev.loupe.weights.io.ByteReader;
import dev.loupe.weights.io.CheckpointException;
import dev.loupe.weights.io.InputFile;
import dev.loupe.weights.io.StrictJson;
import dev.loupe.weights.vocabulary.ByteAlphabet;
import dev.loupe.weights.vocabulary.MergeRecovery;
import dev.loupe.weights.vocabulary.Vocabulary;
import java.lang.foreign.Arena;
import java.lang.foreign.ValueLayout;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Optional;

/**
 * What ggml's GPT-2 example read before there was GGUF. All numbers are 32 bits, little-endian.
 *
 * <pre>
 * 0x67676d6c ("lmgg" in the file)
 * n_vocab, n_ctx, n_embd, n_head, n_layer, ftype + 1000 times the version of the blocks
 * n_vocab once more; then each token: its length, its bytes
 * to the end, each tensor: rank, length of its name, its type, its extents innermost first, its name,
 *   its data
 * </pre>
 *
 * <p>Tensors are called as OpenAI calls them, {@code model/h0/attn/c_attn/w}; matrices are [out,
 * in]. There are no merges: {@link MergeRecovery} finds them again.
 *
 * <p>Source: examples/gpt-2 of ggml, main-ctx.cpp and convert-ckpt-to-ggml.py.
 */
public final class GgmlReader implements CheckpointReader {
  private static final byte[] MAGIC = "lmgg".getBytes(US_ASCII);
  private static final byte[] END_OF_TEXT = "<|endoftext|>".getBytes(US_ASCII);
  private static final int VERSION_FACTOR = 1000;
  private static final int VERSION = 2; // of the layout of blocks; GGUF has no other
  private static final int MAX_TOKENS = 1 << 20; // twenty times GPT-2's vocabulary
  private static final int MAX_TOKEN = 1024; // GPT-2's longest has 128 bytes
  private static final int MAX_TENSORS = 100_000;
  private static final int MAX_NAME = 1024;
  private static final int MAX_RANK = 4;

  @Override
  public List<String> fileNames() {
    return List.of("*.bin");
  }

  @Override
  public boolean recognises(InputFile file) {
    return file.startsWith(MAGIC);
  }

  @Override
  public Contents read(InputFile file, Arena arena) throws CheckpointException {
    ByteReader in = new ByteReader(file, "the model", MAGIC.length, file.bytes().byteSize());
    int vocabulary = in.count32(MAX_TOKENS, "n_vocab");
    int positions = in.count32(Integer.MAX_VALUE, "n_ctx");
    int width = in.count32(Integer.MAX_VALUE, "n_embd");
    int heads = in.count32(Integer.MAX_VALUE, "n_head");
    int layers = in.count32(Integer.MAX_VALUE, "n_layer");
    int version = in.count32(Integer.MAX_VALUE, "ftype") / VERSION_FACTOR;
    int tokens = in.u32();
    if (tokens != vocabulary) { // where other models of ggml's examples have another number
      throw in.damaged(
          in.at() - Integer.BYTES,
          "it has %s tokens and n_vocab %d, so it is no GPT-2"
              .formatted(Integer.toUnsignedString(tokens), vocabulary));
    }
    List<byte[]> bytes = tokens(in, tokens, file);
    int end = bytes.size() - 1;
    while (end >= 0 && !Arrays.equals(bytes.get(end), END_OF_TEXT)) {
      end--;
    }
    List<Entry> entries = new ArrayList<>();
    while (!in.atEnd()) {
      if (entries.size() == MAX_TENSORS) {
        throw in.damaged(in.at(), "it holds more than %d tensors".formatted(MAX_TENSORS));
      }
      entries.add(tensor(in, version, file));
    }
    List<String> notes = new ArrayList<>();
    Optional<Vocabulary> own = vocabulary(bytes, end, notes);
    try {
      Gpt2Config config =
          Gpt2Config.openAi(
              layers, heads, width, positions, vocabulary, end < 0 ? Gpt2Config.END_OF_TEXT : end);
      return new Contents(config, entries, List.of(file), own, notes);
    } catch (IllegalArgumentException e) {
      throw new CheckpointException("%s: %s".formatted(file.path(), e.getMessage()), e);
    }
  }

  private static List<byte[]> tokens(ByteReader in, int count, InputFile file)
      throws CheckpointException {
    List<byte[]> tokens = new ArrayList<>();
    for (int id = 0; id < count; id++) {
      int length = in.count32(MAX_TOKEN, "the length of token " + id);
      tokens.add(file.bytes().asSlice(in.skip(length), length).toArray(ValueLayout.JAVA_BYTE));
    }
    return tokens;
  }

  private static Entry tensor(ByteReader in, int version, InputFile file)
      throws CheckpointException {
    int rank = in.count32(MAX_RANK, "the rank of a tensor");
    int length = in.count32(MAX_NAME, "the length of a tensor's name");
    int number = in.u32();
    List<Long> shape = new ArrayList<>();
    for (int d = 0; d < rank; d++) {
      shape.addFirst((long) in.count32(Integer.MAX_VALUE, "an extent of a tensor"));
    }
    String name = in.utf8(length, "a tensor's name");
    Path path = file.path();
    GgmlType type = GgmlType.numbered(number);
    if (type == null) { // so its size is not known, nor where the next one begins
      throw in.damaged(
          in.at(),
          "%s is stored as %s, which is not read"
              .formatted(StrictJson.shown(name), GgmlType.nameOf(number)));
    }
    if (type.blockElements() > 1 && version != VERSION) {
      throw new CheckpointException(
          "%s: %s is %s in an old layout (version %d), which is not readable; quantise it again"
              .formatted(path, StrictJson.shown(name), type.name(), version));
    }
    Entry entry = GgmlBlocks.entry(huggingFace(name), number, shape, file.bytes(), in.at(), path);
    var _ = in.skip(entry.data() == null ? 0 : entry.data().stored().byteSize());
    return entry;
  }

  private static String huggingFace(String name) {
    return name.equals("model/lm_head") ? Gpt2Layout.HEAD : TensorFlowReader.name(name);
  }

  private static Optional<Vocabulary> vocabulary(List<byte[]> bytes, int end, List<String> notes) {
    try {
      List<String> merges = MergeRecovery.merges(bytes, end);
      List<Vocabulary.Token> tokens = new ArrayList<>(bytes.size());
      for (int id = 0; id < bytes.size(); id++) {
        tokens.add(
            id == end
                ? new Vocabulary.Token(new String(END_OF_TEXT, UTF_8), Vocabulary.Kind.SPECIAL)
                : new Vocabulary.Token(ByteAlphabet.spell(bytes.get(id)), Vocabulary.Kind.NORMAL));
      }
      return Optional.of(new Vocabulary(tokens, merges));
    } catch (IllegalArgumentException e) {
      notes.add("the file's tokens are no byte-level BPE: " + e.getMessage());
      return Optional.empty();
    }
  }
}
