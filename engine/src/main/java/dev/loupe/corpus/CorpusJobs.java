package dev.loupe.corpus;

import dev.loupe.ops.BackendException;
import java.io.IOException;
import java.util.Iterator;
import java.util.Optional;
import java.util.ServiceLoader;

/**
 * The jobs on a corpus. Who carries them out is found when they are wanted, so that nothing here
 * needs it: the module loupe-spark does, on this machine or on a cluster.
 */
public interface CorpusJobs extends AutoCloseable {
  /** Hears from a job. */
  interface Listener {
    /**
     * How far it has come.
     *
     * @return false to end it; what is finished by then is kept
     */
    boolean progress(long done, long total);

    /** Something to know, one sentence. */
    void note(String sentence);
  }

  /** Opens the jobs that were found. */
  interface Provider {
    /**
     * As {@link CorpusJobs#open}.
     *
     * @param name what a cluster shows of it
     * @param threads processors to use, where it is this machine's to say; 0 for all
     */
    CorpusJobs open(String name, int threads);
  }

  /**
   * What came of a preparation.
   *
   * @param documents how many there are
   * @param windows pieces that can be read
   * @param tokens of all of them
   * @param failed documents that can't be, recorded with the reason
   * @param existed whether all of it was there before
   */
  record Prepared(long documents, long windows, long tokens, long failed, boolean existed) {}

  /**
   * What came of a run.
   *
   * @param folder of its results
   * @param windows windows that it read
   * @param tokens of those windows
   * @param failed windows that are recorded with an error, those of the preparation included
   * @param waves how many were done
   * @param skipped how many were there before
   * @param allWaves how many there are
   * @param seconds that the waves took that were done
   */
  record Ran(
      String folder,
      long windows,
      long tokens,
      long failed,
      int waves,
      int skipped,
      int allWaves,
      double seconds) {
    /** Whether somebody ended it before its end. */
    public boolean interrupted() {
      return waves + skipped < allWaves;
    }
  }

  /**
   * Makes documents ready.
   *
   * @throws CorpusException if an input is missing or is not what it should be, or the output has
   *     something else in it
   * @throws dev.loupe.weights.io.CheckpointException if the model can't be read
   */
  Prepared prepare(Preparation what, Listener listener) throws IOException;

  /**
   * Reads documents that were prepared; goes on where an earlier run of the same left off.
   *
   * @throws CorpusException if there is nothing prepared, or it was for another model
   * @throws BackendException if an executor can't do what it should
   * @throws dev.loupe.weights.io.CheckpointException if the model can't be read
   */
  Ran run(CorpusRun what, Listener listener) throws IOException;

  /**
   * What the results of a run come to.
   *
   * @param results the folder that runs were written to, or that of one run
   * @param run which run, by its hash; empty if there is but one
   * @throws CorpusException if there are no results, or several runs and none is named
   */
  CorpusReport report(String results, Optional<String> run) throws IOException;

  @Override
  void close();

  /**
   * The jobs, on whatever this process was started for.
   *
   * @param name what a cluster shows of it
   * @param threads processors to use, where it is this machine's to say; 0 for all
   * @throws BackendException if nobody is there who carries them out
   */
  static CorpusJobs open(String name, int threads) {
    Iterator<Provider> found = ServiceLoader.load(Provider.class).iterator();
    if (!found.hasNext()) {
      throw new BackendException(
          "nothing that runs corpora is here: start scripts/loupe, which adds Spark, or spark-submit with loupe-spark");
    }
    return found.next().open(name, threads);
  }
}
