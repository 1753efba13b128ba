package dev.loupe.spark;

import com.google.gson.JsonObject;
import com.google.gson.JsonPrimitive;
import dev.loupe.corpus.CorpusJobs;
import dev.loupe.corpus.CorpusReport;
import dev.loupe.corpus.CorpusRun;
import dev.loupe.corpus.Preparation;
import java.io.IOException;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.spark.SparkConf;
import org.apache.spark.sql.SparkSession;

/** The jobs on Spark: the cluster that spark-submit names, or this process. */
public final class SparkJobs implements CorpusJobs {
  /** Found by {@link CorpusJobs#open}. */
  public static final class Provider implements CorpusJobs.Provider {
    @Override
    public CorpusJobs open(String name, int threads) {
      return new SparkJobs(name, threads);
    }
  }

  /** A session that is isolated gets none of the files that were added to its context. */
  static final String SEES_FILES = "spark.sql.artifact.isolation.enabled";

  private final SparkSession spark;

  private SparkJobs(String name, int threads) {
    SparkConf conf = new SparkConf();
    Versions.check(
        "the driver", Runtime.version(), org.apache.spark.package$.MODULE$.SPARK_VERSION());
    if (!conf.contains("spark.master")) {
      conf.setMaster(threads > 0 ? "local[%d]".formatted(threads) : "local[*]");
      conf.setIfMissing("spark.ui.enabled", "false");
      conf.setIfMissing("spark.driver.bindAddress", "127.0.0.1");
      conf.setIfMissing("spark.driver.host", "127.0.0.1");
      conf.setIfMissing("spark.executor.heartbeatInterval", "2s");
    }
    conf.set(SEES_FILES, "false");
    spark = SparkSession.builder().appName(name).config(conf).getOrCreate();
  }

  SparkJobs(SparkSession spark) {
    this.spark = spark;
  }

  @Override
  public Prepared prepare(Preparation what, Listener listener) throws IOException {
    return new PrepareJob(spark, what, listener).run();
  }

  @Override
  public Ran run(CorpusRun what, Listener listener) throws IOException {
    return new RunJob(spark, what, listener).run();
  }

  @Override
  public CorpusReport report(String results, Optional<String> run) throws IOException {
    Configuration hadoop = spark.sparkContext().hadoopConfiguration();
    Path folder = RunJob.folder(new Path(results), run, hadoop);
    JsonObject facts = Description.read(folder, hadoop).orElseThrow();
    Map<String, Object> shown = new LinkedHashMap<>();
    facts.asMap().forEach((name, value) -> shown.put(name, plain(value.getAsJsonPrimitive())));
    List<String> waves = RunJob.finished(folder, facts, hadoop);
    shown.put("waves_read", waves.size());
    try {
      return ReportJob.aggregate(
          spark.read().schema(Results.SCHEMA).parquet(waves.toArray(String[]::new)), shown);
    } catch (RuntimeException e) {
      throw Failures.explained(e);
    }
  }

  private static Object plain(JsonPrimitive value) {
    if (value.isBoolean()) {
      return value.getAsBoolean();
    }
    return value.isNumber() ? value.getAsNumber() : value.getAsString();
  }

  @Override
  public void close() {
    spark.stop();
  }
}
