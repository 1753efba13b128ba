package dev.loupe.spark;

import dev.loupe.corpus.CorpusJobs.Listener;
import java.util.HashMap;
import java.util.Map;
import java.util.Objects;
import org.apache.spark.SparkContext;
import org.apache.spark.scheduler.AccumulableInfo;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerExecutorMetricsUpdate;
import org.apache.spark.scheduler.SparkListenerTaskEnd;
import org.apache.spark.util.LongAccumulator;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Says how far the tasks have come, those under way too, by what they count; ends the jobs when the
 * listener has had enough.
 */
final class Watcher extends SparkListener implements AutoCloseable {
  private static final long MILLIS = 200;

  private final SparkContext context;
  private final LongAccumulator counter;
  private final Listener listener;
  private final long before;
  private final long total;
  private final Map<Long, Long> underWay = new HashMap<>(); // by task
  private final Thread thread;
  private volatile boolean closed;
  private volatile boolean ended;

  /**
   * @param counter counts what is done
   * @param before what was done before
   * @param total what there is to do
   */
  Watcher(
      SparkContext context, LongAccumulator counter, Listener listener, long before, long total) {
    this.context = context;
    this.counter = counter;
    this.listener = listener;
    this.before = before;
    this.total = total;
    context.addSparkListener(this);
    thread = Thread.startVirtualThread(this::watch);
  }

  /** Whether the listener has had enough. */
  boolean ended() {
    return ended;
  }

  private void watch() {
    while (!closed) {
      if (ended || !listener.progress(Math.min(done(), total), total)) {
        ended = true; // the next job too, if it has not begun yet
        context.cancelAllJobs();
      }
      try {
        Thread.sleep(MILLIS);
      } catch (InterruptedException e) {
        return; // closed
      }
    }
  }

  private synchronized long done() {
    return before + counter.value() + underWay.values().stream().mapToLong(n -> n).sum();
  }

  @Override
  public synchronized void onTaskEnd(SparkListenerTaskEnd end) {
    underWay.remove(end.taskInfo().taskId());
  }

  @Override
  public synchronized void onExecutorMetricsUpdate(SparkListenerExecutorMetricsUpdate update) {
    for (var task : CollectionConverters.asJava(update.accumUpdates())) {
      for (AccumulableInfo count : CollectionConverters.asJava(task._4())) {
        if (count.id() == counter.id() && count.update().isDefined()) {
          underWay.put((Long) Objects.requireNonNull(task._1()), (Long) count.update().get());
        }
      }
    }
  }

  @Override
  public void close() {
    closed = true;
    thread.interrupt();
    context.removeSparkListener(this);
  }
}
