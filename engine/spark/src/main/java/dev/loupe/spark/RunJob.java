package dev.loupe.spark;

import com.google.gson.Gson;
import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import dev.loupe.BatchReader;
import dev.loupe.attention.AttentionSelection;
import dev.loupe.attention.HeadScore;
import dev.loupe.attention.HeadStatistics;
import dev.loupe.corpus.CorpusException;
import dev.loupe.corpus.CorpusJobs;
import dev.loupe.corpus.CorpusRun;
import dev.loupe.weights.Checkpoint;
import java.io.IOException;
import java.io.Serializable;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.NoSuchElementException;
import java.util.Objects;
import java.util.Optional;
import java.util.Queue;
import java.util.stream.LongStream;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.spark.TaskContext;
import org.apache.spark.TaskKilledException;
import org.apache.spark.api.java.function.MapPartitionsFunction;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.SaveMode;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.util.CollectionAccumulator;
import org.apache.spark.util.LongAccumulator;
import org.apache.spark.util.TaskCompletionListener;
import org.jspecify.annotations.Nullable;

/**
 * Prepared documents to results, wave by wave. A wave is one job without a shuffle, so that the
 * death of an executor costs its own tasks and no others; its rows appear when all of it is done.
 */
final class RunJob {
  private static final String RUN = "run=";
  private static final String WAVE = "wave=";
  private static final String DONE = "_SUCCESS";
  private static final long WHOLE = 1L << 40; // bytes

  private final SparkSession spark;
  private final CorpusRun what;
  private final CorpusJobs.Listener listener;
  private final Configuration hadoop;

  RunJob(SparkSession spark, CorpusRun what, CorpusJobs.Listener listener) {
    this.spark = spark;
    this.what = what;
    this.listener = listener;
    hadoop = spark.sparkContext().hadoopConfiguration();
  }

  /** The wave that a shard is of: neighbours go together. */
  static int waveOf(int shard, int shards, int waves) {
    return (int) ((long) shard * waves / shards);
  }

  /** Tokens of each wave. */
  static LongStream tokens(JsonObject prepared) {
    JsonArray all = prepared.getAsJsonArray("tokens_of_waves");
    return all.asList().stream().mapToLong(JsonElement::getAsLong);
  }

  CorpusJobs.Ran run() throws IOException {
    Path from = new Path(what.prepared());
    JsonObject prepared =
        Description.read(from, hadoop)
            .filter(facts -> facts.has("tokens_of_waves"))
            .orElseThrow(
                () ->
                    new CorpusException(
                        "%s holds nothing that loupe corpus prepare has finished".formatted(from)));
    Models.Place place = Models.Place.of(what.model());
    String sha256;
    try (Checkpoint checkpoint = Checkpoint.open(Models.local(place))) {
      int context = checkpoint.config().nPositions();
      if (prepared.get("context").getAsInt() > context) {
        throw new CorpusException(
            "%s was prepared for a context of %d, and the model reads %d: prepare it for this model"
                .formatted(from, prepared.get("context").getAsInt(), context));
      }
      sha256 = checkpoint.sha256();
    }
    if (!prepared
        .get("vocabulary_sha256")
        .getAsString()
        .equals(PrepareJob.vocabulary(Models.tokenizer(place)))) {
      throw new CorpusException(
          "%s was prepared with another tokenizer than this model's".formatted(from));
    }
    if (place.ship()) {
      Models.send(spark.sparkContext(), java.nio.file.Path.of(place.source()));
    }
    // a shard is one task: its file is not cut, and none are put together
    spark.conf().set("spark.sql.files.maxPartitionBytes", WHOLE);
    spark.conf().set("spark.sql.files.openCostInBytes", WHOLE);
    JsonObject facts = facts(prepared, sha256);
    Path folder = new Path(what.output(), RUN + facts.get("id").getAsString());
    Description.write(folder, facts, hadoop);
    return waves(
        prepared,
        folder,
        new Models.Wanted(
            place,
            sha256,
            what.backend(),
            what.precision(),
            what.threads(),
            spark.sparkContext().isLocal()));
  }

  /**
   * The folder of a run.
   *
   * @param run its hash; empty if there is but one
   * @throws CorpusException if it isn't there
   */
  static Path folder(Path results, Optional<String> run, Configuration hadoop) throws IOException {
    if (results.getName().startsWith(RUN) && run.isEmpty()) {
      if (Description.read(results, hadoop).isPresent()) {
        return results;
      }
      throw new CorpusException("no results of a run in " + results);
    }
    FileSystem files = results.getFileSystem(hadoop);
    if (!files.exists(results)) {
      throw new CorpusException(results + " does not exist");
    }
    List<String> runs = new ArrayList<>();
    for (FileStatus entry : files.listStatus(results)) {
      String name = entry.getPath().getName();
      if (name.startsWith(RUN) && Description.read(entry.getPath(), hadoop).isPresent()) {
        runs.add(name.substring(RUN.length()));
      }
    }
    if (run.isPresent() && runs.contains(run.get())) {
      return new Path(results, RUN + run.get());
    }
    if (runs.isEmpty()) {
      throw new CorpusException("no results of a run in " + results);
    }
    if (run.isPresent() || runs.size() > 1) {
      throw new CorpusException(
          "%s has the runs %s: name one by --run".formatted(results, String.join(", ", runs)));
    }
    return new Path(results, RUN + runs.getFirst());
  }

  /**
   * The folders of the waves that are done.
   *
   * @throws CorpusException if none is
   */
  static List<String> finished(Path folder, JsonObject facts, Configuration hadoop)
      throws IOException {
    FileSystem files = folder.getFileSystem(hadoop);
    List<String> waves = new ArrayList<>();
    for (int wave = 0; wave < facts.get("waves").getAsInt(); wave++) {
      Path path = new Path(folder, WAVE + wave);
      if (files.exists(new Path(path, DONE))) {
        waves.add(path.toString());
      }
    }
    if (waves.isEmpty()) {
      throw new CorpusException("no wave of %s is finished".formatted(folder));
    }
    return waves;
  }

  /** All that results depend on, and where the model was. */
  private JsonObject facts(JsonObject prepared, String sha256) {
    Map<String, Object> facts = new LinkedHashMap<>();
    facts.put("format", "loupe corpus run 1");
    facts.put("prepared", prepared.get("id").getAsString());
    facts.put("documents", prepared.get("documents").getAsLong());
    facts.put("windows", prepared.get("windows").getAsLong());
    facts.put("waves", prepared.get("waves").getAsInt());
    facts.put("model_sha256", sha256);
    facts.put("dtype", what.precision().name().toLowerCase(Locale.ROOT));
    facts.put("log_prob", what.logprobs());
    facts.put("statistics", what.statistics());
    facts.put("value_norms", what.valueNorms());
    facts.put("edges", what.edges());
    facts.put("id", Description.nameOf(facts));
    facts.put("model", what.model().source());
    return new Gson().toJsonTree(facts).getAsJsonObject();
  }

  private CorpusJobs.Ran waves(JsonObject prepared, Path folder, Models.Wanted wanted)
      throws IOException {
    long[] tokens = tokens(prepared).toArray();
    FileSystem files = folder.getFileSystem(hadoop);
    Counts counts = new Counts(spark);
    double seconds = 0;
    int done = 0;
    int skipped = 0;
    long before = 0;
    try {
      for (int wave = 0; wave < tokens.length; wave++) {
        Path to = new Path(folder, WAVE + wave);
        if (files.exists(new Path(to, DONE))) {
          skipped++;
          before += tokens[wave];
          continue;
        }
        long start = System.nanoTime();
        try (Watcher watcher =
            new Watcher(
                spark.sparkContext(),
                counts.tokens,
                listener,
                before,
                LongStream.of(tokens).sum())) {
          try {
            wave(prepared, wave, wanted, counts, to);
          } catch (Exception e) {
            if (watcher.ended()) {
              break;
            }
            throw Failures.explained(e);
          }
          done++;
          seconds += (System.nanoTime() - start) / 1e9;
          if (watcher.ended()) {
            break;
          }
        }
      }
    } finally {
      counts.says.value().stream().distinct().sorted().forEach(listener::note);
    }
    return new CorpusJobs.Ran(
        folder.toString(),
        counts.windows.value(),
        counts.tokens.value(),
        counts.failed.value(),
        done,
        skipped,
        tokens.length,
        seconds);
  }

  private void wave(JsonObject prepared, int wave, Models.Wanted wanted, Counts counts, Path to)
      throws IOException {
    int shards = prepared.get("shards").getAsInt();
    Path documents = new Path(what.prepared(), Prepared.DOCUMENTS);
    FileSystem files = documents.getFileSystem(hadoop);
    List<String> paths = new ArrayList<>();
    for (int shard = 0; shard < shards; shard++) {
      Path path = new Path(documents, Prepared.SHARD + "=" + shard);
      if (waveOf(shard, shards, prepared.get("waves").getAsInt()) == wave && files.exists(path)) {
        paths.add(path.toString());
      }
    }
    // an empty wave is written too: it is done
    spark
        .read()
        .schema(Prepared.SCHEMA)
        .parquet(paths.toArray(String[]::new))
        .mapPartitions(
            new Read(
                wanted,
                counts,
                what.tokens(),
                what.logprobs(),
                what.statistics(),
                what.valueNorms(),
                what.edges()),
            Encoders.row(Results.SCHEMA))
        .write()
        .mode(SaveMode.Overwrite)
        .parquet(to.toString());
  }

  /** What tasks count. */
  private static final class Counts implements Serializable {
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

  /** A task: the windows of a shard, in their order, to rows of results. */
  private record Read(
      Models.Wanted wanted,
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
      Models.Opened opened = Models.open(wanted, task);
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
  }

  /** The rows of one window after the other. */
  private static final class Rows implements Iterator<Row> {
    private final Read read;
    private final TaskContext task;
    private final Iterator<BatchReader.Result> results;
    private final Queue<Row> pulled = new ArrayDeque<>(); // windows without rows so far
    private Iterator<Row> rows = List.<Row>of().iterator();

    Rows(Iterator<Row> windows, BatchReader reader, Read read, TaskContext task) {
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
