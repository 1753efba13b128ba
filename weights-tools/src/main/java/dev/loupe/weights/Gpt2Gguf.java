package dev.loupe.weights;

import dev.loupe.weights.config.Activation;
import dev.loupe.weights.config.Gpt2Config;
import dev.loupe.weights.ggml.GgmlType;
import dev.loupe.weights.ggml.GgufNames;
import dev.loupe.weights.ggml.GgufReader;
import dev.loupe.weights.ggml.GgufWriter;
import dev.loupe.weights.io.CheckpointException;
import dev.loupe.weights.io.Progress;
import dev.loupe.weights.tensor.DType;
import dev.loupe.weights.tensor.StoredTensor;
import dev.loupe.weights.vocabulary.Vocabulary;
import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.ByteBuffer;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;

/**
 * A checkpoint as llama.cpp wants its GPT-2: one GGUF file with the tokenizer inside. Matrices are
 * [out, in] there and in the type that is asked for; norms, biases and positions are f32.
 *
 * <p>Sources: ggml's docs/gguf.md; the loaders of llama.cpp, src/models/gpt2.cpp and
 * src/llama-vocab.cpp.
 */
public final class Gpt2Gguf {
  private static final int PIECE = 1 << 20; // elements on their way at a time, if a row is not more

  private final Checkpoint checkpoint;
  private final Gpt2Config config;
  private final GgmlType type;

  private Gpt2Gguf(Checkpoint checkpoint, GgmlType type) {
    this.checkpoint = checkpoint;
    this.config = checkpoint.config();
    this.type = type;
  }

  /**
   * Writes the file, in memory of a few megabytes.
   *
   * @param type of the matrices
   * @param progress hears weights
   * @throws CheckpointException if the model is one that llama.cpp would compute wrongly, or a
   *     weight is not finite or too large for the type; no file is left then
   * @throws IOException if the file can't be written
   */
  public static void write(
      Checkpoint checkpoint, Vocabulary vocabulary, GgmlType type, Path target, Progress progress)
      throws IOException {
    Gpt2Gguf gguf = new Gpt2Gguf(checkpoint, type);
    gguf.check(vocabulary);
    Map<GgufWriter.Entry, StoredTensor> plan = gguf.plan();
    GgufWriter.Metadata metadata = gguf.metadata(vocabulary);
    try (GgufWriter out = GgufWriter.create(target, metadata, List.copyOf(plan.keySet()))) {
      long done = 0;
      for (Map.Entry<GgufWriter.Entry, StoredTensor> tensor : plan.entrySet()) {
        done = write(out, tensor.getKey(), tensor.getValue(), done, progress, checkpoint);
      }
      checkpoint.checkUnchanged();
      out.commit();
    }
  }

  private void check(Vocabulary vocabulary) throws CheckpointException {
    if (config.activation() != Activation.GELU_NEW) {
      throw refused("activation_function", config.activation().configName(), "gelu_new");
    }
    if (!config.scaleAttnWeights()) {
      throw refused("scale_attn_weights", false, true);
    }
    if (config.scaleAttnByInverseLayerIdx()) {
      throw refused("scale_attn_by_inverse_layer_idx", true, false);
    }
    if (config.eosTokenIds().size() > GgufReader.END_TOKENS.size()) {
      throw new CheckpointException(
          "%s: its model ends at any of %d tokens, and GGUF has fields for %d"
              .formatted(
                  checkpoint.source(), config.eosTokenIds().size(), GgufReader.END_TOKENS.size()));
    }
    if (vocabulary.tokens().size() > config.vocabSize()) {
      throw new CheckpointException(
          "%s: the tokenizer has %d tokens and the model %d: they do not belong together"
              .formatted(checkpoint.source(), vocabulary.tokens().size(), config.vocabSize()));
    }
    for (int width : List.of(config.nEmbd(), config.nInner())) {
      if (width % type.blockElements() != 0) {
        throw new CheckpointException(
            "%s: rows of %d weights are no whole blocks of %d, which %s needs; take f16"
                .formatted(checkpoint.source(), width, type.blockElements(), type));
      }
    }
  }

  private CheckpointException refused(String field, Object value, Object needed) {
    return new CheckpointException(
        "%s: its config says %s %s, and GGUF's gpt2 knows %s only"
            .formatted(checkpoint.source(), field, value, needed));
  }

  private GgufWriter.Metadata metadata(Vocabulary vocabulary) {
    GgufWriter.Metadata metadata =
        new GgufWriter.Metadata()
            .put("general.architecture", "gpt2")
            .put("general.type", "model")
            .put("general.size_label", sizeLabel(checkpoint.parameters()))
            .put("general.name", String.valueOf(checkpoint.source().getFileName()))
            .put("general.file_type", fileType(type))
            .put("general.quantization_version", 2)
            .put("gpt2.context_length", config.nPositions())
            .put("gpt2.embedding_length", config.nEmbd())
            .put("gpt2.feed_forward_length", config.nInner())
            .put("gpt2.block_count", config.nLayer())
            .put("gpt2.attention.head_count", config.nHead())
            .put("gpt2.attention.layer_norm_epsilon", config.layerNormEpsilon());
    List<Vocabulary.Token> tokens = new ArrayList<>(vocabulary.tokens());
    for (int id = tokens.size(); id < config.vocabSize(); id++) {
      tokens.add(Vocabulary.Token.unused(id));
    }
    metadata
        .put("tokenizer.ggml.model", "gpt2")
        .put("tokenizer.ggml.pre", "gpt-2")
        .putStrings(
            "tokenizer.ggml.tokens", tokens.stream().map(Vocabulary.Token::spelling).toList())
        .putInts(
            "tokenizer.ggml.token_type",
            tokens.stream().map(token -> number(token.kind())).toList())
        .putStrings("tokenizer.ggml.merges", vocabulary.merges())
        .put("tokenizer.ggml.add_bos_token", vocabulary.front() >= 0);
    int bos = vocabulary.front() >= 0 ? vocabulary.front() : config.bosTokenId();
    if (bos >= 0) {
      metadata.put("tokenizer.ggml.bos_token_id", bos);
    }
    for (int i = 0; i < config.eosTokenIds().size(); i++) {
      metadata.put(GgufReader.END_TOKENS.get(i), config.eosTokenIds().get(i));
    }
    if (vocabulary.unknown() >= 0) {
      metadata.put("tokenizer.ggml.unknown_token_id", vocabulary.unknown());
    }
    vocabulary
        .chatTemplate()
        .ifPresent(template -> metadata.put(GgufReader.CHAT_TEMPLATE, template));
    return metadata;
  }

  /** The number of weights as llama.cpp writes it into the names of files: 124M, 1.6B. */
  private static String sizeLabel(long weights) {
    double value = weights / 1e3;
    char unit = 'K';
    for (char next : new char[] {'M', 'B', 'T'}) {
      if (value < 999.5) {
        break;
      }
      value /= 1e3;
      unit = next;
    }
    return String.format(Locale.ROOT, value < 9.95 ? "%.1f%c" : "%.0f%c", value, unit);
  }

  /** llama.cpp's number of a file whose matrices are of this type. */
  private static int fileType(GgmlType type) {
    return switch (type) {
      case F16 -> 1;
      case Q8_0 -> 7;
      case BF16 -> 32;
      default -> 0;
    };
  }

  /** GGUF's number of a kind of token. */
  private static int number(Vocabulary.Kind kind) {
    return switch (kind) {
      case NORMAL -> 1;
      case SPECIAL -> 3;
      case ADDED -> 4;
      case UNUSED -> 5;
    };
  }

  private Map<GgufWriter.Entry, StoredTensor> plan() {
    Map<GgufWriter.Entry, StoredTensor> plan = new LinkedHashMap<>();
    for (StoredTensor tensor : checkpoint.tensors()) {
      boolean plain = tensor.shape().size() == 1 || tensor.name().equals("wpe.weight");
      plan.put(
          new GgufWriter.Entry(
              GgufNames.of(tensor.name()),
              plain ? GgmlType.F32 : type,
              isConv1d(tensor) ? tensor.shape().reversed() : tensor.shape()),
          tensor);
    }
    return plan;
  }

  /** Stored [in, out]; the tables of embeddings and the head are [rows, C] everywhere. */
  private static boolean isConv1d(StoredTensor tensor) {
    return tensor.shape().size() == 2 && tensor.name().startsWith("h.");
  }

  private static long write(
      GgufWriter out,
      GgufWriter.Entry entry,
      StoredTensor tensor,
      long done,
      Progress progress,
      Checkpoint checkpoint)
      throws IOException {
    int width = Math.toIntExact(entry.shape().getLast());
    long rows = entry.elements() / width;
    int step = (int) Math.min(rows, Math.max(1, PIECE / width));
    float[] piece = new float[step * width];
    ByteBuffer bytes = GgufWriter.buffer(entry.type().bytes(piece.length));
    try (Arena one = Arena.ofConfined()) {
      MemorySegment data = tensor.data(one);
      for (long first = 0; first < rows; first += step) {
        int n = (int) Math.min(step, rows - first);
        if (isConv1d(tensor)) {
          transpose(tensor, data, first, n, piece);
        } else {
          DType dtype = tensor.dtype();
          dtype.decode(data, first * width * dtype.bytes(), piece, 0, n * width);
        }
        int bad = entry.type().encode(piece, 0, n * width, bytes.clear());
        if (bad >= 0) {
          throw new CheckpointException(
              "%s: %s holds %s, which %s can't store"
                  .formatted(checkpoint.source(), tensor.name(), piece[bad], entry.type()));
        }
        out.write(entry.name(), bytes.flip());
        done += (long) n * width;
        progress.report(done, checkpoint.parameters());
      }
    }
    return done;
  }

  /** Rows {@code first} to {@code first + n - 1} of [out, in]; {@code data} is [in, out]. */
  private static void transpose(
      StoredTensor tensor, MemorySegment data, long first, int n, float[] to) {
    int in = Math.toIntExact(tensor.shape().getFirst());
    long outputs = tensor.shape().getLast();
    DType dtype = tensor.dtype();
    float[] column = new float[n];
    for (int i = 0; i < in; i++) {
      dtype.decode(data, (i * outputs + first) * dtype.bytes(), column, 0, n);
      for (int o = 0; o < n; o++) {
        to[o * in + i] = column[o];
      }
    }
  }
}
