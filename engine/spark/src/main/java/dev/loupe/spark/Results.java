package dev.loupe.spark;

import dev.loupe.attention.HeadScore;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/**
 * What a run over a corpus writes: Parquet under {@code run=<hash>/wave=<k>}, one row for each
 * window of a document and each head. What is of the whole window stands in each of its rows. A
 * window that could not be read is one row, with its error and without layer and head; so is, but
 * for the error, one of which no statistics were asked.
 */
final class Results {
  /** Name of a document: its id, or its file and place. */
  static final String DOC_ID = "doc_id";

  /** Number of the window within its document, from 0; windows do not see one another. */
  static final String WINDOW = "window";

  /** Number of tokens of the window; null where it was not tokenized. */
  static final String N_TOKENS = "n_tokens";

  /**
   * Sum of ln p of all tokens of the window but its first; null if it has one, or was not asked.
   */
  static final String LOG_PROB = "log_prob";

  /** exp(-log_prob / (n_tokens - 1)). */
  static final String PERPLEXITY = "perplexity";

  /** Why there is nothing of it; null where there is. */
  static final String ERROR = "error";

  static final String LAYER = "layer";
  static final String HEAD = "head";

  /** The heaviest edges, heaviest first, each with query, key and weight; null unless asked for. */
  static final String EDGES = "edges";

  private static final StructType EDGE =
      DataTypes.createStructType(
          new StructField[] {
            DataTypes.createStructField("query", DataTypes.IntegerType, false),
            DataTypes.createStructField("key", DataTypes.IntegerType, false),
            DataTypes.createStructField("weight", DataTypes.FloatType, false)
          });

  /** Then a column for each {@link HeadScore}, by its key; null where the head has none. */
  static final StructType SCHEMA = schema();

  private Results() {}

  private static StructType schema() {
    StructType schema =
        new StructType()
            .add(DOC_ID, DataTypes.StringType, false)
            .add(WINDOW, DataTypes.IntegerType, false)
            .add(N_TOKENS, DataTypes.IntegerType)
            .add(LOG_PROB, DataTypes.DoubleType)
            .add(PERPLEXITY, DataTypes.DoubleType)
            .add(ERROR, DataTypes.StringType)
            .add(LAYER, DataTypes.IntegerType)
            .add(HEAD, DataTypes.IntegerType);
    for (HeadScore score : HeadScore.values()) {
      schema = schema.add(score.key(), DataTypes.DoubleType);
    }
    return schema.add(EDGES, DataTypes.createArrayType(EDGE, false));
  }
}
