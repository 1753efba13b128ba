package dev.loupe.weights.ggml;

import dev.loupe.weights.config.Activation;
import dev.loupe.weights.config.Gpt2Config;
import dev.loupe.weights.config.TokenIds;
import dev.loupe.weights.format.CheckpointReader;
import dev.loupe.weights.io.ByteReader;
import dev.loupe.weights.io.CheckpointException;
import dev.loupe.weights.io.InputFile;
import dev.loupe.weights.io.StrictJson;
import dev.loupe.weights.vocabulary.Vocabulary;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;

/**
 * llama.cpp's GGUF, versions 2 and 3, with a GPT-2 in it, from F64 to blocks of 2 bits. What the
 * bytes mean is drawn at {@link GgufWriter}. Matrices are [out, in]; the tokenizer comes along.
 *
 * <p>The shapes of the tensors say what the model's are; metadata only what shapes can't.
 *
 * <p>Sources: ggml's docs/gguf.md; llama.cpp, src/models/gpt2.cpp and src/llama-vocab.cpp.
 */
public final class GgufReader implements CheckpointReader {
  private static final byte[] MAGIC = "GGUF".getBytes(StandardCharsets.US_ASCII);
  private static final int MAX_TENSORS = 100_000;
  private static final int MAX_NAME = 1024;
  private static final int MAX_RANK = 4;
  private static final int DEFAULT_ALIGNMENT = 32;
  private static final float DEFAULT_EPSILON = 1e-5f;
  private static final long NO_TOKEN = -1;
  private static final int NO_NUMBER = Integer.MIN_VALUE;

  public static final String CHAT_TEMPLATE = "tokenizer.chat_template";

  /** Where a model stops: the ends of a text, of a turn, of a message. */
  public static final List<String> END_TOKENS =
      List.of(
          "tokenizer.ggml.eos_token_id",
          "tokenizer.ggml.eot_token_id",
          "tokenizer.ggml.eom_token_id");

  @Override
  public List<String> fileNames() {
    return List.of("*.gguf");
  }

  @Override
  public boolean recognises(InputFile file) {
    return file.startsWith(MAGIC);
  }

  @Override
  public Contents read(InputFile file, Arena arena) throws CheckpointException {
    ByteReader in = new ByteReader(file, "its header", MAGIC.length, file.bytes().byteSize());
    checkVersion(in.u32(), file.path());
    int tensors = in.count64(MAX_TENSORS, "the number of tensors");
    GgufMetadata metadata = GgufMetadata.read(in, file.path().toString());
    checkArchitecture(metadata, file.path());
    Map<String, Row> rows = rows(in, tensors, file.path());
    in.align(alignment(metadata, file.path()));
    MemorySegment data = file.bytes().asSlice(in.at());
    List<Entry> entries = new ArrayList<>();
    for (Map.Entry<String, Row> row : rows.entrySet()) {
      entries.add(entry(row.getKey(), row.getValue(), data, file.path()));
    }
    List<String> notes = new ArrayList<>();
    Optional<Vocabulary> vocabulary = vocabulary(metadata, file.path(), notes);
    return new Contents(
        config(metadata, rows, file.path(), notes), entries, List.of(file), vocabulary, notes);
  }

  private static void checkVersion(int version, Path file) throws CheckpointException {
    if ((version & 0xFFFF) == 0 && version != 0) {
      throw new CheckpointException(
          file + " is a GGUF file in big-endian order; convert it for a little-endian machine");
    }
    if (version != 2 && version != 3) {
      throw new CheckpointException(
          "%s is a GGUF file of version %s; readable are 2 and 3"
              .formatted(file, Integer.toUnsignedString(version)));
    }
  }

  private static void checkArchitecture(GgufMetadata metadata, Path file)
      throws CheckpointException {
    String architecture = metadata.string("general.architecture");
    if (!"gpt2".equals(architecture)) {
      throw new CheckpointException(
          "%s holds a model of the architecture %s; only gpt2 can be used"
              .formatted(file, architecture == null ? "unknown" : StrictJson.shown(architecture)));
    }
    long parts = metadata.whole("split.count").orElse(1);
    if (parts > 1) {
      throw new CheckpointException(
          "%s is one of %d parts of a model; join them with llama-gguf-split --merge"
              .formatted(file, parts));
    }
  }

  private static int alignment(GgufMetadata metadata, Path file) throws CheckpointException {
    long alignment = metadata.whole("general.alignment").orElse(DEFAULT_ALIGNMENT);
    if (alignment < 1 || alignment > 1 << 20 || Long.bitCount(alignment) != 1) {
      throw new CheckpointException(
          "%s: general.alignment is %d, not a power of 2 up to 2^20".formatted(file, alignment));
    }
    return (int) alignment;
  }

  /** One line of the table of tensors; {@code shape} is outermost first. */
  private record Row(List<Long> shape, int type, long offset) {}

  private static Map<String, Row> rows(ByteReader in, int tensors, Path file)
      throws CheckpointException {
    Map<String, Row> rows = new LinkedHashMap<>();
    for (int i = 0; i < tensors; i++) {
      String name =
          in.utf8(in.count64(MAX_NAME, "the length of a tensor's name"), "a tensor's name");
      String what = StrictJson.shown(name);
      int rank = in.count32(MAX_RANK, "the rank of " + what);
      List<Long> shape = new ArrayList<>();
      for (int d = 0; d < rank; d++) {
        shape.addFirst((long) in.count64(Integer.MAX_VALUE, "an extent of " + what));
      }
      Row row = new Row(shape, in.u32(), in.u64());
      if (rows.put(name, row) != null) {
        throw new CheckpointException("%s lists %s twice".formatted(file, what));
      }
    }
    return rows;
  }

  private static Entry entry(String name, Row row, MemorySegment data, Path file)
      throws CheckpointException {
    String hf = GgufNames.huggingFace(name);
    return GgmlBlocks.entry(hf, row.type, row.shape, data, row.offset, file);
  }

  private static Gpt2Config config(
      GgufMetadata metadata, Map<String, Row> rows, Path file, List<String> notes)
      throws CheckpointException {
    List<Long> wte = shape("token_embd.weight", rows, file);
    List<Long> wpe = shape("position_embd.weight", rows, file);
    List<Long> up = shape("blk.0.ffn_up.weight", rows, file);
    note(metadata, "gpt2.context_length", wpe.getFirst(), notes);
    note(metadata, "gpt2.embedding_length", wte.getLast(), notes);
    note(metadata, "gpt2.feed_forward_length", up.getFirst(), notes);
    int layers = metadata.whole32("gpt2.block_count", NO_NUMBER);
    int heads = metadata.whole32("gpt2.attention.head_count", NO_NUMBER);
    if (heads == NO_NUMBER) {
      throw new CheckpointException(file + " has no gpt2.attention.head_count");
    }
    try {
      List<Integer> bos =
          tokens(
              metadata,
              List.of("tokenizer.ggml.bos_token_id"),
              Math.toIntExact(wte.getFirst()),
              notes);
      return new Gpt2Config(
          layers == NO_NUMBER ? layers(rows) : layers,
          heads,
          Math.toIntExact(wte.getLast()),
          Math.toIntExact(wpe.getFirst()),
          Math.toIntExact(wte.getFirst()),
          Math.toIntExact(up.getFirst()),
          Activation.GELU_NEW,
          (float) metadata.real("gpt2.attention.layer_norm_epsilon").orElse(DEFAULT_EPSILON),
          true,
          false,
          bos.isEmpty() ? -1 : bos.getFirst(),
          tokens(metadata, END_TOKENS, Math.toIntExact(wte.getFirst()), notes));
    } catch (IllegalArgumentException | ArithmeticException e) {
      throw new CheckpointException("%s: %s".formatted(file, e.getMessage()), e);
    }
  }

  /** The tokens that these fields name, those of the vocabulary. */
  private static List<Integer> tokens(
      GgufMetadata metadata, List<String> fields, int vocabSize, List<String> notes)
      throws CheckpointException {
    Set<Integer> tokens = new LinkedHashSet<>();
    for (String field : fields) {
      List<Long> ids = new ArrayList<>();
      metadata.whole(field).ifPresent(ids::add);
      tokens.addAll(TokenIds.known(field, ids, vocabSize, notes));
    }
    return List.copyOf(tokens);
  }

  private static List<Long> shape(String name, Map<String, Row> rows, Path file)
      throws CheckpointException {
    Row row = rows.get(name);
    if (row == null || row.shape.size() != 2) {
      throw new CheckpointException("%s has no matrix %s, so it is no GPT-2".formatted(file, name));
    }
    return row.shape;
  }

  private static int layers(Map<String, Row> rows) {
    int layers = 0;
    while (rows.containsKey("blk.%d.attn_norm.weight".formatted(layers))) {
      layers++;
    }
    return layers;
  }

  private static void note(GgufMetadata metadata, String key, long actual, List<String> notes)
      throws CheckpointException {
    long said = metadata.whole(key).orElse(actual);
    if (said != actual) {
      notes.add("%s is %d, but the tensors say %d, which counts".formatted(key, said, actual));
    }
  }

  private static Optional<Vocabulary> vocabulary(
      GgufMetadata metadata, Path file, List<String> notes) throws CheckpointException {
    String model = metadata.string("tokenizer.ggml.model");
    List<String> tokens = metadata.list("tokenizer.ggml.tokens", String.class);
    List<String> merges = metadata.list("tokenizer.ggml.merges", String.class);
    if (!"gpt2".equals(model) || tokens == null || merges == null) {
      notes.add("the file has no tokenizer of GPT-2's kind");
      return Optional.empty();
    }
    String pre = metadata.string("tokenizer.ggml.pre");
    if (pre != null && !pre.equals("gpt-2") && !pre.equals("default")) {
      notes.add(
          "the tokenizer parts words as %s does; GPT-2's way is taken"
              .formatted(StrictJson.shown(pre)));
    }
    List<Long> types = metadata.list("tokenizer.ggml.token_type", Long.class);
    if (types != null && types.size() != tokens.size()) {
      throw new CheckpointException(
          "%s has %d tokens and %d types of tokens".formatted(file, tokens.size(), types.size()));
    }
    long end = metadata.whole("tokenizer.ggml.eos_token_id").orElse(NO_TOKEN);
    List<Vocabulary.Token> vocabulary = new ArrayList<>(tokens.size());
    for (int id = 0; id < tokens.size(); id++) {
      Vocabulary.Kind kind =
          types != null
              ? kind(types.get(id))
              : id == end ? Vocabulary.Kind.SPECIAL : Vocabulary.Kind.NORMAL;
      vocabulary.add(new Vocabulary.Token(tokens.get(id), kind));
    }
    long unknown = metadata.whole("tokenizer.ggml.unknown_token_id").orElse(NO_TOKEN);
    return Optional.of(
        new Vocabulary(
            vocabulary,
            merges,
            front(metadata, tokens.size(), notes),
            unknown < 0 || unknown >= tokens.size() ? -1 : (int) unknown,
            Optional.ofNullable(metadata.string(CHAT_TEMPLATE))));
  }

  /** The id that add_bos_token puts in front of a text, or -1. What stands behind is not put. */
  private static int front(GgufMetadata metadata, int tokens, List<String> notes)
      throws CheckpointException {
    if (metadata.whole("tokenizer.ggml.add_space_prefix").orElse(0) != 0) {
      notes.add("add_space_prefix is set, which a tokenizer of GPT-2's kind does not follow");
    }
    if (metadata.whole("tokenizer.ggml.add_bos_token").orElse(0) == 0) {
      return -1;
    }
    long bos = metadata.whole("tokenizer.ggml.bos_token_id").orElse(NO_TOKEN);
    if (bos < 0 || bos >= tokens) {
      notes.add("add_bos_token is set, but bos_token_id names no token: nothing is put in front");
      return -1;
    }
    return (int) bos;
  }

  /** Of GGUF's numbers; 2 stands for what is unknown, 6 for a byte. */
  private static Vocabulary.Kind kind(long number) {
    return switch ((int) number) {
      case 2, 3 -> Vocabulary.Kind.SPECIAL;
      case 4 -> Vocabulary.Kind.ADDED;
      case 5 -> Vocabulary.Kind.UNUSED;
      default -> Vocabulary.Kind.NORMAL;
    };
  }
}
