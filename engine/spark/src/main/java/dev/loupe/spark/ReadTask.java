package dev.loupe.spark;

import dev.loupe.attention.AttentionSelection;
import dev.loupe.attention.HeadScore;
import dev.loupe.attention.HeadStatistics;
import dev.loupe.generate.BatchReader;
import java.io.IOException;
import java.io.Serializable;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.NoSuchElementException;
import java.util.Objects;
import java.util.Optional;
import java.util.Queue;
import org.apache.spark.TaskContext;
import org.apache.spark.TaskKilledException;
import org.apache.spark.api.java.function.MapPartitionsFunction;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.util.CollectionAccumulator;
import org.apache.spark.util.LongAccumulator;
import org.apache.spark.util.TaskCompletionListener;
import org.jspecify.annotations.Nullable;

/** What a task does: the windows of a shard, in their order, to rows of results. */
record ReadTask(
    OpenModels.Wanted wanted,
    Counts counts,
    int tokens,
    boolean logprobs,
    boolean statistics,
    boolean valueNorms,
    int edges)
    implements MapPartitionsFunction<Row, Row> {
  @Override
  public Iterator<Row> call(Iterator<Row> windows) throws IOException {
    TaskContext task = TaskContext.get();
    OpenModels.Opened opened = OpenModels.open(wanted, task);
    counts.says.add(opened.says());
    AttentionSelection all = AttentionSelection.all().headStatisticsOnly();
    BatchReader reader =
        opened
            .loupe()
            .batchReader(
                statistics
                    ? Optional.of(valueNorms ? all.withValueNorms() : all)
                    : Optional.empty(),
                logprobs,
                tokens);
    task.addTaskCompletionListener((TaskCompletionListener) _ -> reader.close());
    return new Rows(windows, reader, this, task);
  }

  /** What tasks count. */
  static final class Counts implements Serializable {
    private static final long serialVersionUID = 1L;

    final LongAccumulator windows;
    final LongAccumulator tokens;
    final LongAccumulator failed;
    final CollectionAccumulator<String> says;

    Counts(SparkSession spark) {
      windows = spark.sparkContext().longAccumulator("loupe windows");
      tokens = spark.sparkContext().longAccumulator("loupe tokens");
      failed = spark.sparkContext().longAccumulator("loupe failed");
      says = spark.sparkContext().collectionAccumulator("loupe executors");
    }
  }

  /** The rows of one window after the other. */
  private static final class Rows implements Iterator<Row> {
    private final ReadTask read;
    private final TaskContext task;
    private final Iterator<BatchReader.Result> results;
    private final Queue<Row> pulled = new ArrayDeque<>(); // windows without rows so far
    private Iterator<Row> rows = List.<Row>of().iterator();

    Rows(Iterator<Row> windows, BatchReader reader, ReadTask read, TaskContext task) {
      this.read = read;
      this.task = task;
      results =
          reader.read(
              new Iterator<>() {
                private @Nullable Row next;

                @Override
                public boolean hasNext() {
                  while (next == null && windows.hasNext()) {
                    Row row = windows.next();
                    pulled.add(row);
                    if (row.isNullAt(4)) {
                      next = row;
                    }
                  }
                  return next != null;
                }

                @Override
                public int[] next() {
                  if (!hasNext()) {
                    throw new NoSuchElementException();
                  }
                  Row row = Objects.requireNonNull(next);
                  next = null;
                  return row.<Integer>getList(3).stream().mapToInt(id -> id).toArray();
                }
              });
    }

    @Override
    public boolean hasNext() {
      return rows.hasNext() || !pulled.isEmpty() || results.hasNext();
    }

    @Override
    public Row next() {
      if (!rows.hasNext()) {
        if (task.isInterrupted()) {
          throw new TaskKilledException("ended between two windows");
        }
        if (pulled.isEmpty() && !results.hasNext()) {
          throw new NoSuchElementException();
        }
        rows = rows(pulled.remove()).iterator();
      }
      return rows.next();
    }

    private List<Row> rows(Row window) {
      if (!window.isNullAt(4)) {
        read.counts.failed.add(1);
        return List.of(row(window, null, window.getString(4), -1, -1));
      }
      BatchReader.Result result = results.next();
      if (result.error().isPresent()) {
        read.counts.failed.add(1);
        return List.of(row(window, null, result.error().get(), -1, -1));
      }
      read.counts.windows.add(1);
      read.counts.tokens.add(result.tokens());
      Optional<HeadStatistics> heads = result.heads();
      if (heads.isEmpty()) {
        return List.of(row(window, result, null, -1, -1));
      }
      List<Row> all = new ArrayList<>();
      for (int layer : heads.get().layers()) {
        for (int head : heads.get().heads()) {
          all.add(row(window, result, null, layer, head));
        }
      }
      return all;
    }

    /** As {@link Results} has it. */
    private Row row(
        Row window,
        BatchReader.@Nullable Result result,
        @Nullable String error,
        int layer,
        int head) {
      HeadScore[] scores = HeadScore.values();
      @Nullable Object[] row = new Object[9 + scores.length];
      row[0] = window.getString(0);
      row[1] = window.getInt(1);
      row[2] = window.isNullAt(2) ? null : (Object) window.getInt(2);
      row[5] = error;
      if (result != null) {
        row[3] = number(result.logprob());
        row[4] = number(result.perplexity());
        HeadStatistics heads = result.heads().orElse(null);
        if (heads != null) {
          row[6] = layer;
          row[7] = head;
          for (int i = 0; i < scores.length; i++) {
            row[8 + i] = number(heads.score(scores[i], layer, head));
          }
          if (read.edges > 0) {
            row[8 + scores.length] =
                heads.edges(layer, head, true).stream()
                    .limit(read.edges)
                    .map(edge -> RowFactory.create(edge.query(), edge.key(), edge.weight()))
                    .toArray();
          }
        }
      }
      return RowFactory.create(row);
    }

    private static @Nullable Double number(double value) {
      return Double.isNaN(value) ? null : value;
    }
  }
}
