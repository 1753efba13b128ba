package dev.loupe.spark;

import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;

/**
 * What a preparation writes: Parquet under {@code documents/shard=<s>}, a row for each window,
 * sorted by its length, then by the document. What could not be prepared is a row with its error
 * and without ids.
 */
final class Prepared {
  static final String DOCUMENTS = "documents";
  static final String SHARD = "shard";
  static final String IDS = "ids";

  /** As it lies in a shard. */
  static final StructType SCHEMA =
      new StructType()
          .add(Results.DOC_ID, DataTypes.StringType, false)
          .add(Results.WINDOW, DataTypes.IntegerType, false)
          .add(Results.N_TOKENS, DataTypes.IntegerType)
          .add(IDS, DataTypes.createArrayType(DataTypes.IntegerType, false))
          .add(Results.ERROR, DataTypes.StringType);

  private Prepared() {}
}
