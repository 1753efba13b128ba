package dev.loupe.spark;

import dev.loupe.corpus.CorpusException;
import dev.loupe.cuda.driver.GpuException;
import dev.loupe.ops.BackendException;
import dev.loupe.weights.io.CheckpointException;
import java.io.IOException;
import org.apache.spark.sql.AnalysisException;
import org.jspecify.annotations.Nullable;

/** What is to be said of a job that failed: its cause, not what Spark wraps it in. */
final class Failures {
  private Failures() {}

  /** The exception that says what went wrong; {@code e} itself if it is a defect. */
  static IOException explained(Throwable e) throws IOException {
    Throwable last = e;
    for (@Nullable Throwable cause = e; cause != null; cause = cause.getCause()) {
      last = cause;
      switch (cause) {
        case BackendException known -> throw known;
        case GpuException known -> throw known;
        case CheckpointException known -> throw known;
        case CorpusException known -> throw known;
        case OutOfMemoryError known -> throw known;
        default -> {}
      }
      if (String.valueOf(cause.getMessage()).contains("UnsupportedClassVersionError")) {
        throw new BackendException(
            "an executor runs a Java older than 25: set spark.executorEnv.JAVA_HOME to one of %s or newer"
                .formatted(Versions.JAVA));
      }
    }
    if (e instanceof RuntimeException defect && !e.getClass().getName().contains("spark")) {
      throw defect;
    }
    String said = String.valueOf(last.getMessage()).lines().findFirst().orElse("");
    return e instanceof AnalysisException
        ? new CorpusException(said, e)
        : new IOException("the job failed: " + said, e);
  }
}
