package dev.loupe.spark;

import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.corpus.CorpusException;
import java.nio.file.Path;
import org.apache.spark.sql.SparkSession;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.function.Executable;
import org.junit.jupiter.api.io.TempDir;

/** A folder and a session of Spark on this machine, both of the class. */
abstract class CorpusFixture {
  static final int HEADS = 18; // 6 layers of 3

  @TempDir static Path folder;

  static SparkSession spark;
  static SparkJobs jobs;

  @BeforeAll
  static void start() {
    spark = Corpora.local();
    jobs = new SparkJobs(spark);
  }

  @AfterAll
  static void stop() {
    jobs.close();
  }

  static void refused(String words, Executable job) {
    CorpusException e = assertThrows(CorpusException.class, job);
    assertTrue(String.valueOf(e.getMessage()).contains(words), e.getMessage());
  }
}
