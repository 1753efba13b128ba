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
 * @param longTexts what becomes of documents that are longer than the context
 * @param shards how many parts, each the work of one task
 * @param waves in how many steps a run goes through them; what is finished of a run is kept wave by
 *     wave
 */
public record Preparation(
    List<String> inputs,
    Format format,
    String textField,
    Optional<String> idField,
    String output,
    boolean overwrite,
    ModelPlace model,
    LongTexts longTexts,
    int shards,
    int waves) {
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
    if (waves < 1 || shards < waves || shards > 1 << 20) {
      throw new IllegalArgumentException(
          "%d shards in %d waves: not 1 to %d, at least one a wave"
              .formatted(shards, waves, 1 << 20));
    }
    inputs = List.copyOf(inputs);
  }
}
