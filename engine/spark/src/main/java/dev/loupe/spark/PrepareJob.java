package dev.loupe.spark;

import static org.apache.spark.sql.functions.col;
import static org.apache.spark.sql.functions.count;
import static org.apache.spark.sql.functions.lit;
import static org.apache.spark.sql.functions.pmod;
import static org.apache.spark.sql.functions.sum;
import static org.apache.spark.sql.functions.when;
import static org.apache.spark.sql.functions.xxhash64;

import com.google.gson.Gson;
import com.google.gson.JsonObject;
import dev.loupe.corpus.CorpusException;
import dev.loupe.corpus.CorpusJobs;
import dev.loupe.corpus.Preparation;
import dev.loupe.corpus.Preparation.LongTexts;
import dev.loupe.text.Count;
import dev.loupe.text.Tokenizer;
import dev.loupe.weights.Checkpoint;
import dev.loupe.weights.config.Gpt2Config;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CancellationException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.spark.api.java.JavaRDD;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.SaveMode;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.util.LongAccumulator;
import org.jspecify.annotations.Nullable;

/** Documents to tokens: cut, spread over shards by their ids, and sorted by length in each. */
final class PrepareJob {
  private static final int MOST_PARTITIONS = 1000; // of the shuffle

  private final SparkSession spark;
  private Preparation what;
  private final CorpusJobs.Listener listener;
  private final Configuration hadoop;
  private final Path output;

  PrepareJob(SparkSession spark, Preparation what, CorpusJobs.Listener listener) {
    this.spark = spark;
    this.what = what;
    this.listener = listener;
    hadoop = spark.sparkContext().hadoopConfiguration();
    output = new Path(what.output());
  }

  CorpusJobs.Prepared run() throws IOException {
    OpenModels.Place place = OpenModels.Place.of(what.model());
    Gpt2Config config;
    try (Checkpoint checkpoint = Checkpoint.open(OpenModels.local(place))) {
      config = checkpoint.config();
    }
    Tokenizer tokenizer = OpenModels.tokenizer(place);
    int[] front = what.front() ? tokenizer.front() : new int[0];
    if (front.length >= config.nPositions()) {
      throw new CorpusException(
          "the model reads %d tokens, and the tokenizer's files put %d in front of each text: give --no-bos"
              .formatted(config.nPositions(), front.length));
    }
    tokenizer.notes().forEach(listener::note);
    LongAccumulator read = spark.sparkContext().longAccumulator("loupe bytes");
    Documents documents = new Documents(spark, what, read);
    Documents.Census census = documents.census();
    what = what.sized(census.bytes());
    JsonObject facts = facts(census, config, tokenizer, front);
    Optional<JsonObject> before = before();
    if (before.isPresent() && before.get().has("windows")) {
      if (before.get().get("id").equals(facts.get("id"))) {
        return prepared(before.get(), true);
      }
      if (!what.overwrite()) {
        throw new CorpusException(
            "%s holds what was prepared otherwise, or from other documents: choose another folder, or give --overwrite"
                .formatted(output));
      }
    }
    Description.write(output, facts, hadoop); // not finished: it has no counts
    try (Watcher watcher =
        new Watcher(spark.sparkContext(), read, listener, 0, Math.max(1, census.bytes()))) {
      write(documents.read(census), place, config.nPositions(), watcher);
    }
    addCounts(facts);
    Description.write(output, facts, hadoop);
    return prepared(facts, false);
  }

  /** What the folder says of itself; one that is not ours is left alone. */
  private Optional<JsonObject> before() throws IOException {
    Optional<JsonObject> before = Description.read(output, hadoop);
    FileSystem files = FileSystems.of(output, hadoop);
    if (before.isEmpty() && files.exists(output) && files.listStatus(output).length > 0) {
      throw new CorpusException(
          "%s is not empty, and nothing in it was prepared by Loupe: choose another folder"
              .formatted(output));
    }
    return before;
  }

  private JsonObject facts(
      Documents.Census census, Gpt2Config config, Tokenizer tokenizer, int[] front) {
    Map<String, Object> facts = new LinkedHashMap<>();
    facts.put("format", "loupe prepared documents 1");
    facts.put("inputs", what.inputs());
    facts.put("files", census.files());
    facts.put("bytes", census.bytes());
    facts.put("changed", census.changed());
    facts.put("read_as", census.format().name().toLowerCase(Locale.ROOT));
    facts.put("text_field", what.textField());
    facts.put("id_field", what.idField().orElse(""));
    facts.put("front", Arrays.stream(front).boxed().toList());
    facts.put("long_texts", what.longTexts().name().toLowerCase(Locale.ROOT));
    facts.put("context", config.nPositions());
    facts.put("vocabulary_sha256", vocabulary(tokenizer));
    facts.put("tokenizer", tokenizer.settings());
    facts.put("shards", what.shards());
    facts.put("waves", what.waves());
    facts.put("id", Description.nameOf(facts));
    return new Gson().toJsonTree(facts).getAsJsonObject();
  }

  /** Tells tokenizers apart, by what each id stands for. */
  static String vocabulary(Tokenizer tokenizer) {
    StringBuilder all = new StringBuilder();
    for (int id = 0; id < tokenizer.size(); id++) {
      all.append(tokenizer.contains(id) ? tokenizer.raw(id) : "").append('\n');
    }
    return Description.sha256(all.toString().getBytes(StandardCharsets.UTF_8));
  }

  private void write(
      JavaRDD<Documents.Document> documents, OpenModels.Place place, int context, Watcher watcher)
      throws IOException {
    LongTexts longTexts = what.longTexts();
    boolean front = what.front();
    JavaRDD<Row> rows =
        documents.mapPartitions(
            all -> new Windows(all, OpenModels.tokenizer(place), context, front, longTexts));
    Dataset<Row> windows =
        spark
            .createDataFrame(rows, Prepared.SCHEMA)
            .withColumn(
                Prepared.SHARD,
                pmod(xxhash64(col(Results.DOC_ID)), lit((long) what.shards())).cast("int"));
    try {
      windows
          .repartition(Math.min(what.shards(), MOST_PARTITIONS), col(Prepared.SHARD))
          .sortWithinPartitions(Prepared.SHARD, Results.N_TOKENS, Results.DOC_ID, Results.WINDOW)
          .write()
          .mode(SaveMode.Overwrite)
          .partitionBy(Prepared.SHARD)
          .parquet(new Path(output, Prepared.DOCUMENTS).toString());
    } catch (Exception e) {
      if (watcher.ended()) {
        throw new CancellationException("ended while preparing");
      }
      throw Failures.explained(e);
    }
  }

  /** The windows of documents, one after the other. */
  private static final class Windows implements Iterator<Row> {
    private final Iterator<Documents.Document> documents;
    private final Tokenizer tokenizer;
    private final int context;
    private final int[] front;
    private final LongTexts longTexts;
    private Iterator<Row> of = List.<Row>of().iterator();

    Windows(
        Iterator<Documents.Document> documents,
        Tokenizer tokenizer,
        int context,
        boolean front,
        LongTexts longTexts) {
      this.documents = documents;
      this.tokenizer = tokenizer;
      this.context = context;
      this.front = front ? tokenizer.front() : new int[0];
      this.longTexts = longTexts;
    }

    @Override
    public boolean hasNext() {
      return of.hasNext() || documents.hasNext();
    }

    @Override
    public Row next() {
      if (!of.hasNext()) {
        of = windows(documents.next()).iterator(); // at least one
      }
      return of.next();
    }

    private List<Row> windows(Documents.Document document) {
      String text = document.text();
      if (text == null) {
        return List.of(row(document.id(), 0, null, null, document.error()));
      }
      int[] ids;
      try {
        ids = tokenizer.encode(text, false);
      } catch (IllegalArgumentException e) { // a character that this vocabulary lacks
        return List.of(row(document.id(), 0, null, null, String.valueOf(e.getMessage())));
      }
      if (ids.length == 0) {
        return List.of(row(document.id(), 0, 0, null, "it is empty"));
      }
      int tokens = front.length + ids.length;
      if (tokens > context && longTexts == LongTexts.REFUSE) {
        String error =
            String.format(
                Locale.ROOT, "it has %,d tokens and the model reads %,d", tokens, context);
        return List.of(row(document.id(), 0, tokens, null, error));
      }
      List<Row> windows = new ArrayList<>();
      int step = context - front.length;
      for (int from = 0; from < ids.length; from += step) {
        int end = Math.min(from + step, ids.length);
        int[] some = Arrays.copyOf(front, front.length + end - from);
        System.arraycopy(ids, from, some, front.length, end - from);
        windows.add(row(document.id(), windows.size(), some.length, some, null));
      }
      return windows;
    }

    private static Row row(
        String id,
        int window,
        @Nullable Integer tokens,
        int @Nullable [] ids,
        @Nullable String error) {
      return RowFactory.create(
          id, window, tokens, ids == null ? null : Arrays.stream(ids).boxed().toArray(), error);
    }
  }

  /** Adds how much of everything there is. */
  private void addCounts(JsonObject facts) throws IOException {
    Dataset<Row> all = spark.read().parquet(new Path(output, Prepared.DOCUMENTS).toString());
    List<Row> waves =
        all.groupBy(col(Prepared.SHARD))
            .agg(
                count(lit(1)),
                sum(when(col(Results.ERROR).isNull(), 1L).otherwise(0L)),
                sum(when(col(Results.ERROR).isNull(), col(Results.N_TOKENS)).otherwise(0L)))
            .collectAsList();
    long rows = 0;
    long windows = 0;
    long[] tokens = new long[what.waves()];
    for (Row shard : waves) {
      rows += shard.getLong(1);
      windows += shard.getLong(2);
      tokens[RunJob.waveOf(shard.getInt(0), what.shards(), what.waves())] += shard.getLong(3);
    }
    Dataset<Row> ids = all.select(Results.DOC_ID, Results.WINDOW);
    long documents = ids.select(Results.DOC_ID).distinct().count();
    long twice = rows - ids.distinct().count();
    if (twice > 0) {
      listener.note(
          "%s with the id of another document: ids come twice"
              .formatted(Count.grouped(twice, "window")));
    }
    facts.addProperty("documents", documents);
    facts.addProperty("windows", windows);
    facts.addProperty("failed", rows - windows);
    facts.add(Description.TOKENS_OF_WAVES, new Gson().toJsonTree(tokens));
  }

  private static CorpusJobs.Prepared prepared(JsonObject facts, boolean existed) {
    return new CorpusJobs.Prepared(
        facts.get("documents").getAsLong(),
        facts.get("windows").getAsLong(),
        RunJob.tokens(facts).sum(),
        facts.get("failed").getAsLong(),
        existed);
  }
}
