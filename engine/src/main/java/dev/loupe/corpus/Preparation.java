package dev.loupe.corpus;

import java.util.List;
import java.util.Optional;

/**
 * Which documents are made ready for a model: tokenized, cut, and spread over shards.
 *
 * @param inputs files, folders or patterns, on any file system that Spark reads
 * @param format what they are
 * @param textField field or column of the text, of JSON lines and Parquet
 * @param idField that of the document's id; empty for file and place
 * @param output folder to write, which keeps Parquet and a description
 * @param overwrite whether what is in it may go
 * @param model whose tokenizer and context count
 * @param front whether each window begins with the tokens that the tokenizer's files put in front
 *     of a text
 * @param longTexts what becomes of documents that are longer than the context
 * @param shards how many parts, each the work of one task; 0 for one for each {@value
 *     #BYTES_OF_SHARD} bytes of input, and at least {@value #SHARDS_OF_WAVE}
 * @param waves in how many steps a run goes through them; what is finished of a run is kept wave by
 *     wave; 0 for one for each {@value #SHARDS_OF_WAVE} shards
 */
public record Preparation(
    List<String> inputs,
    Format format,
    String textField,
    Optional<String> idField,
    String output,
    boolean overwrite,
    ModelPlace model,
    boolean front,
    LongTexts longTexts,
    int shards,
    int waves) {
  /** Bytes of input for each shard: minutes of a GPT-2's time on a CPU. */
  public static final int BYTES_OF_SHARD = 256 << 10;

  /** Shards of a wave, where nothing else is said. */
  public static final int SHARDS_OF_WAVE = 8;

  private static final int MOST_SHARDS = 1 << 20;

  /** What the inputs are. */
  public enum Format {
    /** By the ending of the files. */
    AUTO,
    /** A document is a file. */
    TEXT,
    /** A document is a line. */
    LINES,
    /** A document is a JSON object on a line. */
    JSON,
    /** A document is a row. */
    PARQUET
  }

  /** What becomes of documents that are longer than the context. */
  public enum LongTexts {
    /** They are cut into windows of the context, which do not see one another. */
    WINDOWS,
    /** They are recorded as refused. */
    REFUSE
  }

  public Preparation {
    if (inputs.isEmpty()) {
      throw new IllegalArgumentException("no input: name files or folders");
    }
    if (waves < 0 || shards < 0 || shards > MOST_SHARDS || (shards > 0 && waves > shards)) {
      throw new IllegalArgumentException(
          "%d shards in %d waves: not up to %d, at least one a wave"
              .formatted(shards, waves, MOST_SHARDS));
    }
    inputs = List.copyOf(inputs);
  }

  /** The same with numbers of shards and waves for so many bytes, where they were left open. */
  public Preparation sized(long bytes) {
    int some =
        shards > 0
            ? shards
            : Math.clamp(
                Math.ceilDiv(bytes, BYTES_OF_SHARD), Math.max(SHARDS_OF_WAVE, waves), MOST_SHARDS);
    int steps = waves > 0 ? waves : Math.ceilDiv(some, SHARDS_OF_WAVE);
    return new Preparation(
        inputs, format, textField, idField, output, overwrite, model, front, longTexts, some,
        steps);
  }
}
