package dev.loupe.weights.format;

import static java.nio.charset.StandardCharsets.UTF_8;

import dev.loupe.weights.io.ByteReader;
import dev.loupe.weights.io.CheckpointException;
import dev.loupe.weights.io.InputFile;
import dev.loupe.weights.vocabulary.ByteAlphabet;
import dev.loupe.weights.vocabulary.MergeRecovery;
import dev.loupe.weights.vocabulary.Vocabulary;
import java.lang.foreign.ValueLayout;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;

/**
 * llm.c's tokenizer file: the bytes of every token and no merges, which {@link MergeRecovery} finds
 * again.
 *
 * <pre>
 * 256 numbers (u32): 20240328, version, tokens, id of the end of text (from version 2 on), zeros
 * each token: its length (u8), its bytes
 * </pre>
 *
 * <p>Source: {@code write_tokenizer} in train_gpt2.py of karpathy/llm.c.
 *
 * @param vocabulary its tokens by id
 * @param endOfText the id of {@code <|endoftext|>}
 */
public record LlmCTokenizer(Vocabulary vocabulary, int endOfText) {
  static final int MAGIC = 20240328;
  public static final String FILE_NAME = "gpt2_tokenizer.bin";
  private static final int MAX_BYTES = 64 << 20;

  /** The tokenizer beside a model, if there is one. */
  public static Optional<LlmCTokenizer> beside(Path model) throws CheckpointException {
    Path path = model.resolveSibling(FILE_NAME);
    if (!Files.exists(path)) {
      return Optional.empty();
    }
    return Optional.of(read(InputFile.read(path, MAX_BYTES, "a tokenizer")));
  }

  /**
   * Reads a tokenizer.
   *
   * @throws CheckpointException if it is none, is damaged, or not one of byte-level BPE
   */
  static LlmCTokenizer read(InputFile file) throws CheckpointException {
    long size = file.bytes().byteSize();
    ByteReader in = new ByteReader(file, "the tokenizer", 0, size);
    if (in.u32() != MAGIC) {
      throw new CheckpointException(
          "%s is no tokenizer of llm.c: its first number is not %d".formatted(file.path(), MAGIC));
    }
    int version = in.u32();
    if (version != 1 && version != 2) {
      throw new CheckpointException(
          "%s: its header at byte 4 says version %d; readable are 1 and 2"
              .formatted(file.path(), version));
    }
    long count = in.u32() & 0xFFFFFFFFL;
    long end = version == 1 ? count - 1 : in.u32(); // GPT-2's is the last
    in.skip(LlmCReader.HEADER_BYTES - in.at());
    if (count == 0 || count > size - in.at()) {
      throw new CheckpointException(
          "%s: its header at byte 8 announces %d tokens, and %d bytes follow it"
              .formatted(file.path(), count, size - in.at()));
    }
    if (count > Vocabulary.MOST_TOKENS) {
      throw new CheckpointException(
          "%s: its header at byte 8 announces %d tokens, more than %d"
              .formatted(file.path(), count, Vocabulary.MOST_TOKENS));
    }
    if (end < 0 || end >= count) {
      throw new CheckpointException(
          "%s: its header at byte 12 says that of %d tokens %d is the end of text"
              .formatted(file.path(), count, end));
    }
    List<byte[]> tokens = tokens(in, file, (int) count);
    try {
      return new LlmCTokenizer(vocabulary(tokens, (int) end), (int) end);
    } catch (IllegalArgumentException e) {
      throw new CheckpointException(
          "%s is no byte-level BPE: %s".formatted(file.path(), e.getMessage()), e);
    }
  }

  private static List<byte[]> tokens(ByteReader in, InputFile file, int count)
      throws CheckpointException {
    List<byte[]> tokens = new ArrayList<>(count);
    for (int id = 0; id < count; id++) {
      int length = in.u8();
      tokens.add(file.bytes().asSlice(in.skip(length), length).toArray(ValueLayout.JAVA_BYTE));
    }
    if (!in.atEnd()) {
      throw new CheckpointException(
          "%s goes on after its %d tokens, at byte %d".formatted(file.path(), count, in.at()));
    }
    return tokens;
  }

  private static Vocabulary vocabulary(List<byte[]> tokens, int end) {
    List<String> merges = MergeRecovery.merges(tokens, end);
    List<Vocabulary.Token> spelled = new ArrayList<>(tokens.size());
    for (int id = 0; id < tokens.size(); id++) {
      spelled.add(
          id == end
              ? new Vocabulary.Token(new String(tokens.get(id), UTF_8), Vocabulary.Kind.SPECIAL)
              : new Vocabulary.Token(ByteAlphabet.spell(tokens.get(id)), Vocabulary.Kind.NORMAL));
    }
    return new Vocabulary(spelled, merges);
  }
}
