package dev.loupe.spark;

import dev.loupe.Backend;
import dev.loupe.BackendException;
import dev.loupe.Loupe;
import dev.loupe.Options;
import dev.loupe.corpus.ModelPlace;
import dev.loupe.ops.Precision;
import dev.loupe.text.Tokenizer;
import dev.loupe.weights.Checkpoint;
import java.io.IOException;
import java.io.Serializable;
import java.net.InetAddress;
import java.net.UnknownHostException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import java.util.stream.Stream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkContext;
import org.apache.spark.SparkEnv;
import org.apache.spark.SparkFiles;
import org.apache.spark.TaskContext;
import org.apache.spark.deploy.SparkHadoopUtil;
import org.apache.spark.resource.ResourceInformation;
import org.jspecify.annotations.Nullable;

/**
 * The models that this process has open: one for all tasks of an executor, which take turns on its
 * cores. They stay open as long as the process lives.
 */
final class OpenModels {
  /**
   * What an executor opens.
   *
   * @param sha256 of the weights as the driver has them
   * @param local whether this is the driver's own process, which takes whatever card there is
   * @param threads 0 for the executor's cores
   */
  record Wanted(
      Place place, String sha256, Backend backend, Precision precision, int threads, boolean local)
      implements Serializable {}

  /** As {@link ModelPlace}, for a task to take along. */
  record Place(String source, boolean ship, @Nullable String gpt2Tokenizer)
      implements Serializable {
    static Place of(ModelPlace place) {
      return new Place(
          place.source(), place.ship(), place.gpt2Tokenizer().map(Path::toString).orElse(null));
    }

    Optional<Path> tokenizer() {
      return Optional.ofNullable(gpt2Tokenizer).map(Path::of);
    }
  }

  /**
   * An open model.
   *
   * @param says what it runs on and, if that is not the card that it was assigned, why
   */
  record Opened(Loupe loupe, String says) {}

  private static final Map<Object, Opened> OPEN = new HashMap<>();
  private static final Map<Place, Tokenizer> TOKENIZERS = new HashMap<>();
  private static final Map<String, Path> FETCHED = new HashMap<>();

  private OpenModels() {}

  /** This executor, for people. */
  static String here() {
    String id = SparkEnv.get().executorId();
    if (id.equals("driver")) {
      return "the driver";
    }
    try {
      return "executor %s on %s".formatted(id, InetAddress.getLocalHost().getHostName());
    } catch (UnknownHostException e) {
      return "executor " + id;
    }
  }

  /**
   * The model for a task, which is opened for the first of them.
   *
   * @throws BackendException if it isn't here, is another one than the driver's, or can't run
   */
  static synchronized Opened open(Wanted wanted, TaskContext task) throws IOException {
    ResourceInformation gpus = task.resourcesJMap().get("gpu");
    @Nullable String card = gpus == null ? null : gpus.addresses()[0];
    Object key = Map.entry(wanted, String.valueOf(card));
    Opened open = OPEN.get(key);
    if (open == null) {
      open = open(wanted, card);
      OPEN.put(key, open);
      if (!wanted.local()) {
        System.err.println("loupe: " + open.says()); // to the executor's log
      }
    }
    return open;
  }

  private static Opened open(Wanted wanted, @Nullable String card) throws IOException {
    String here = here();
    Versions.check(here, Runtime.version(), org.apache.spark.package$.MODULE$.SPARK_VERSION());
    Backend backend = wanted.backend();
    if (card == null && !wanted.local()) {
      if (backend == Backend.CUDA) {
        throw new BackendException(
            "%s was assigned no card: set spark.executor.resource.gpu.amount and spark.task.resource.gpu.amount"
                .formatted(here));
      }
      backend = Backend.CPU; // others of this machine may have its cards
    }
    Options options =
        Options.defaults()
            .backend(backend)
            .device(device(card, here))
            .precision(wanted.precision())
            .threads(wanted.threads() > 0 ? wanted.threads() : cores())
            .hash(true);
    Optional<Path> tokenizer = wanted.place().tokenizer();
    if (tokenizer.isPresent()) {
      options = options.gpt2Tokenizer(tokenizer.get());
    }
    Path source = local(wanted.place());
    Loupe loupe = Loupe.open(source, options);
    String sha256 = loupe.info().sha256().orElseThrow();
    if (!sha256.equals(wanted.sha256())) {
      loupe.close();
      throw new BackendException(
          "%s has another model at %s than the driver: SHA-256 %s, not %s"
              .formatted(here, source, sha256, wanted.sha256()));
    }
    String device = loupe.info().device();
    boolean fellBack = card != null && !loupe.info().backend().equals("cuda");
    return new Opened(
        loupe,
        "%s%s: %s"
            .formatted(
                here,
                card == null
                    ? ""
                    : fellBack
                        ? ", assigned card %s, which it can't use".formatted(card)
                        : ", card " + card,
                device));
  }

  private static int device(@Nullable String card, String here) {
    try {
      return card == null ? 0 : Integer.parseInt(card.strip());
    } catch (NumberFormatException e) {
      throw new BackendException(
          "%s was assigned the card \"%s\": the discovery script should print numbers"
              .formatted(here, card));
    }
  }

  /** Cores of this executor, where Spark says how many; all of the machine where it has them. */
  private static int cores() {
    SparkConf conf = SparkEnv.get().conf();
    String master = conf.get("spark.master", "");
    boolean one = master.startsWith("yarn") || master.startsWith("k8s");
    return conf.getInt(
        "spark.executor.cores", one ? 1 : Runtime.getRuntime().availableProcessors());
  }

  /** The tokenizer of a model, which is opened once. */
  static synchronized Tokenizer tokenizer(Place place) throws IOException {
    Tokenizer tokenizer = TOKENIZERS.get(place);
    if (tokenizer == null) {
      try (Checkpoint checkpoint = Checkpoint.open(local(place))) {
        tokenizer = Tokenizer.open(checkpoint, place.tokenizer());
      }
      TOKENIZERS.put(place, tokenizer);
    }
    return tokenizer;
  }

  /** Sends a model to all executors, now and later: a file, or those of a folder. */
  static void send(SparkContext context, Path model) throws IOException {
    if (!Files.isDirectory(model)) {
      context.addFile(model.toString());
      return;
    }
    try (Stream<Path> files = Files.list(model)) {
      for (Path file : files.filter(Files::isRegularFile).sorted().toList()) {
        context.addFile(file.toString());
      }
    }
  }

  /**
   * Where a model lies on this machine; one that lies elsewhere is fetched first.
   *
   * @throws BackendException if it isn't there
   */
  static synchronized Path local(Place place) throws IOException {
    String source = place.source();
    if (place.ship() && !SparkEnv.get().executorId().equals("driver")) {
      Path file = Path.of(SparkFiles.get(String.valueOf(Path.of(source).getFileName())));
      return Files.exists(file) ? file : file.resolveSibling("");
    }
    if (!source.matches("[a-z][a-z0-9+.-]+://.*")) {
      if (!Files.exists(Path.of(source))) {
        throw new BackendException(
            "%s has no %s: put the model at the same path on every machine, or send it along by --ship"
                .formatted(here(), source));
      }
      return Path.of(source);
    }
    Path fetched = FETCHED.get(source);
    if (fetched == null) {
      org.apache.hadoop.fs.Path from = new org.apache.hadoop.fs.Path(source);
      Path folder =
          Files.createTempDirectory(Path.of(SparkFiles.getRootDirectory()), "loupe-model-");
      fetched = folder.resolve(from.getName());
      FileSystem files = FileSystems.of(from, SparkHadoopUtil.get().conf());
      if (!files.exists(from)) {
        throw new BackendException("%s finds no %s".formatted(here(), source));
      }
      files.copyToLocalFile(false, from, new org.apache.hadoop.fs.Path(fetched.toUri()), true);
      FETCHED.put(source, fetched);
    }
    return fetched;
  }
}
