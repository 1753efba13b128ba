package dev.loupe.spark;

import com.google.gson.Gson;
import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import dev.loupe.corpus.CorpusException;
import dev.loupe.corpus.CorpusJobs;
import dev.loupe.corpus.CorpusRun;
import dev.loupe.weights.Checkpoint;
import java.io.IOException;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.stream.LongStream;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SaveMode;
import org.apache.spark.sql.SparkSession;

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
    JsonArray all = prepared.getAsJsonArray(Description.TOKENS_OF_WAVES);
    return all.asList().stream().mapToLong(JsonElement::getAsLong);
  }

  CorpusJobs.Ran run() throws IOException {
    Path from = new Path(what.prepared());
    JsonObject prepared =
        Description.read(from, hadoop)
            .filter(facts -> facts.has(Description.TOKENS_OF_WAVES))
            .orElseThrow(
                () ->
                    new CorpusException(
                        "%s holds nothing that loupe corpus prepare has finished".formatted(from)));
    OpenModels.Place place = OpenModels.Place.of(what.model());
    String sha256;
    try (Checkpoint checkpoint = Checkpoint.open(OpenModels.local(place))) {
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
        .equals(PrepareJob.vocabulary(OpenModels.tokenizer(place)))) {
      throw new CorpusException(
          "%s was prepared with another tokenizer than this model's".formatted(from));
    }
    if (place.ship()) {
      OpenModels.send(spark.sparkContext(), java.nio.file.Path.of(place.source()));
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
        new OpenModels.Wanted(
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
    FileSystem files = FileSystems.of(results, hadoop);
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
    FileSystem files = FileSystems.of(folder, hadoop);
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

  private CorpusJobs.Ran waves(JsonObject prepared, Path folder, OpenModels.Wanted wanted)
      throws IOException {
    long[] tokens = tokens(prepared).toArray();
    FileSystem files = FileSystems.of(folder, hadoop);
    ReadTask.Counts counts = new ReadTask.Counts(spark);
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

  private void wave(
      JsonObject prepared, int wave, OpenModels.Wanted wanted, ReadTask.Counts counts, Path to)
      throws IOException {
    int shards = prepared.get("shards").getAsInt();
    Path documents = new Path(what.prepared(), Prepared.DOCUMENTS);
    FileSystem files = FileSystems.of(documents, hadoop);
    List<String> paths = new ArrayList<>();
    for (int shard = 0; shard < shards; shard++) {
      Path path = new Path(documents, Prepared.SHARD + "=" + shard);
      if (waveOf(shard, shards, prepared.get("waves").getAsInt()) == wave && files.exists(path)) {
        paths.add(path.toString());
      }
    }
    Dataset<Row> windows =
        paths.isEmpty()
            ? spark.createDataFrame(List.of(), Prepared.SCHEMA)
            : spark.read().schema(Prepared.SCHEMA).parquet(paths.toArray(String[]::new));
    windows // none are written too: the wave is done
        .mapPartitions(
            new ReadTask(
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
}
