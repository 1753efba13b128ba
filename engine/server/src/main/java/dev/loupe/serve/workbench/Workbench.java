package dev.loupe.serve.workbench;

import com.google.gson.JsonObject;
import dev.loupe.Loupe;
import dev.loupe.attention.AttentionSelection;
import dev.loupe.attention.HeadStatistics;
import dev.loupe.export.LensReport;
import dev.loupe.generate.GenerateRequest;
import dev.loupe.generate.Prompt;
import dev.loupe.generate.ReadListener;
import dev.loupe.generate.Scheduler;
import dev.loupe.interpret.Comparison;
import dev.loupe.interpret.HeadSurvey;
import dev.loupe.serve.http.ApiException;
import dev.loupe.serve.http.Exchange;
import dev.loupe.serve.http.Metrics;
import dev.loupe.serve.http.Outbox;
import dev.loupe.serve.http.Places;
import dev.loupe.serve.workbench.Runs.Run;
import dev.loupe.weights.config.Gpt2Config;
import java.time.Duration;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.CancellationException;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Supplier;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * What the page asks for, under {@code /api}: a run is written and read, kept, and then looked at
 * part by part. Everything below a run's path is a function of the path, so that a browser may keep
 * it.
 */
public final class Workbench implements AutoCloseable {
  public static final String RUNS = "/api/runs";
  private static final String INFO = "/api/info";
  private static final String HEADS = "/api/heads";
  private static final Pattern RUN = Pattern.compile(RUNS + "/([0-9a-f]{1,64})(?:/([a-z]{1,12}))?");
  private static final Set<String> PARTS =
      Set.of(
          "thumbs", "tile", "rows", "stats", "lens", "compare", "export", "trace", "effort",
          "patch", "numbers");

  /** Bytes of runs that the page can look at. */
  private static final long MOST_KEPT = 512L << 20;

  private static final Map<String, String> FOR_EVER =
      Map.of("cache-control", "private, max-age=31536000, immutable");

  private final Loupe loupe;
  private final Gpt2Config config;
  private final String model;
  private final Runs runs;
  private final RunWriter writer;
  private final Readings readings;
  private final RunExport export;
  private final Traces traces;
  private final Outbox outbox;
  private final Map<String, String> answers = new ConcurrentHashMap<>(); // those of the model
  private volatile boolean closing;

  /**
   * @param places where runs wait, and what else takes long
   * @param timeout of a request, waiting included
   * @param outbox for large answers
   */
  public Workbench(
      Loupe loupe,
      Scheduler scheduler,
      String model,
      Places places,
      Metrics metrics,
      Duration timeout,
      Outbox outbox) {
    this.loupe = loupe;
    this.model = model;
    this.outbox = outbox;
    runs = new Runs(MOST_KEPT);
    writer = new RunWriter(loupe, scheduler, places, metrics, timeout, runs);
    readings = new Readings(places, timeout);
    export = new RunExport(loupe, model, runs, readings);
    traces = new Traces(loupe, runs, readings, outbox, () -> closing);
    config = loupe.info().config();
  }

  /** All that {@link #route} says. */
  public static Set<String> routes() {
    Set<String> routes = new TreeSet<>(Set.of(INFO, HEADS, RUNS, RUNS + "/{id}"));
    PARTS.forEach(part -> routes.add(RUNS + "/{id}/" + part));
    return routes;
  }

  /** The path with a run's name left open, if there is something at it. */
  public static Optional<String> route(String path) {
    if (path.equals(INFO) || path.equals(HEADS) || path.equals(RUNS)) {
      return Optional.of(path);
    }
    Matcher run = RUN.matcher(path);
    if (!run.matches()) {
      return Optional.empty();
    }
    String part = run.group(2);
    if (part == null) {
      return Optional.of(RUNS + "/{id}");
    }
    return PARTS.contains(part) ? Optional.of(RUNS + "/{id}/" + part) : Optional.empty();
  }

  /**
   * Answers a request at one of the {@link #routes}.
   *
   * @throws ApiException if the request is wrong or can't be served
   */
  public void answer(Exchange exchange) {
    try {
      switch (exchange.request().path()) {
        case INFO -> exchange.send(200, PageJson.info(loupe, model, writer.example()));
        case HEADS -> {
          long deadline = readings.deadline();
          json(exchange, readings.beside(deadline, this::heads), Map.of());
        }
        case RUNS -> writer.answer(exchange);
        default -> run(exchange);
      }
    } catch (InterruptedException | CancellationException e) {
      throw ApiException.closing();
    } catch (IllegalArgumentException e) { // a head or a token that is not there
      throw ApiException.invalid(400, null, String.valueOf(e.getMessage()));
    }
  }

  private static void json(Exchange exchange, String json, Map<String, String> more) {
    exchange.send(200, "application/json", json, more);
  }

  private String heads() {
    return answers.computeIfAbsent(
        HEADS,
        _ -> {
          HeadSurvey survey = loupe.heads(Prompt.text(""), unlessClosing());
          return PageJson.heads(survey, loupe).toString();
        });
  }

  private ReadListener unlessClosing() {
    return (layersDone, layers) -> !closing;
  }

  private void run(Exchange exchange) throws InterruptedException {
    Matcher path = RUN.matcher(exchange.request().path());
    if (!path.matches()) {
      throw new IllegalStateException(exchange.request().path());
    }
    String id = path.group(1);
    Query query = new Query(exchange.request());
    String part = path.group(2) == null ? "" : path.group(2);
    long deadline = readings.deadline();
    switch (part) {
      case "" -> {
        Run run = run(id);
        json(exchange, made(run, part, () -> PageJson.run(run)), FOR_EVER);
      }
      case "stats" -> {
        Run run = run(id);
        json(
            exchange,
            readings.amongRuns(
                exchange,
                outbox,
                0,
                deadline,
                () -> made(run, part, () -> statistics(run, Readings.wanted(exchange)))),
            FOR_EVER);
      }
      case "compare" -> json(exchange, compare(id, query), FOR_EVER);
      case "lens" -> {
        Run run = run(id);
        json(
            exchange,
            readings.amongRuns(exchange, outbox, 0, deadline, () -> lens(run, query)),
            FOR_EVER);
      }
      case "thumbs" -> {
        exchange.reserve(outbox, RunMaps.thumbsBytes(run(id).cache(), query), deadline);
        bytes(exchange, runs.look(all -> RunMaps.thumbs(all.run(id).cache(), query)));
      }
      case "tile" -> {
        exchange.reserve(outbox, MapPixels.MOST, deadline);
        bytes(exchange, runs.look(all -> RunMaps.tile(all, id, query)));
      }
      case "rows" -> {
        Run run = run(id);
        long bytes =
            (long) Float.BYTES * config.nLayer() * run.cache().heads() * run.spec().length();
        bytes(
            exchange,
            readings.amongRuns(
                exchange,
                outbox,
                bytes,
                deadline,
                () -> runs.look(all -> RunMaps.rows(all.run(id).cache(), query))));
      }
      case "effort" -> json(exchange, traces.effort(run(id), query).toString(), FOR_EVER);
      case "patch" -> traces.grid(exchange, run(id), query, deadline);
      case "numbers" -> {
        Run run = run(id);
        String row =
            readings.amongRuns(exchange, outbox, 0, deadline, () -> traces.row(run, query));
        exchange.send(
            200,
            query.is("as", "csv") ? "text/csv; charset=utf-8" : "application/json",
            row,
            FOR_EVER);
      }
      case "trace" -> traces.answer(exchange, run(id), query, deadline);
      case "export" -> export.send(exchange, id, query, deadline);
      default -> throw new IllegalStateException(part);
    }
  }

  private static void bytes(Exchange exchange, byte[] bytes) {
    exchange.send(200, "application/octet-stream", bytes, FOR_EVER);
  }

  private Run run(String id) throws InterruptedException {
    return runs.look(all -> all.run(id));
  }

  /** What is made once of a run. */
  private String made(Run run, String part, Supplier<JsonObject> made) throws InterruptedException {
    Optional<String> known = runs.look(all -> all.answer(run, part));
    if (known.isPresent()) {
      return known.get();
    }
    String answer = made.get().toString();
    return runs.look(
        all -> {
          all.keep(run, part, answer);
          return answer;
        });
  }

  private JsonObject statistics(Run run, GenerateRequest.Listener listener) {
    run.spec().requireCausal("statistics are");
    GenerateRequest request =
        run.spec()
            .writing()
            .tokens(0)
            .attention(AttentionSelection.all().headStatisticsOnly())
            .listener(listener);
    HeadStatistics all = loupe.run(request).getFirst().headStatistics().orElseThrow();
    return PageJson.statistics(all, run.spec().length());
  }

  private String compare(String id, Query query) throws InterruptedException {
    return runs.look(
        all -> {
          Run after = all.run(id);
          Run before = all.run(query.id("with"));
          Optional<String> known = all.answer(after, Runs.with(before));
          if (known.isPresent()) {
            return known.get();
          }
          String answer =
              PageJson.comparison(Comparison.of(before.cache(), after.cache())).toString();
          all.keep(after, Runs.with(before), answer);
          return answer;
        });
  }

  private String lens(Run run, Query query) {
    if (!run.spec().isPlain()) {
      throw ApiException.invalid(400, null, "the lens is of the model as it is, without changes");
    }
    int position = query.number("q", run.spec().length() - 1, 0, Integer.MAX_VALUE);
    int target = query.number("target", -1, 0, config.vocabSize() - 1);
    int top = query.number("top", RunWriter.TOP, 0, 20);
    return LensReport.json(loupe.lens(run.spec().prompt(), position, target, top));
  }

  /** Makes what the page asks for first, before anybody does. */
  public void prepare() throws InterruptedException {
    Optional<String> example = writer.example();
    String _ = readings.beside(readings.deadline(), this::heads);
    if (example.isPresent()) { // what else the first view asks for
      Run run = run(example.get());
      String _ =
          readings.beside(
              readings.deadline(),
              () -> made(run, "stats", () -> statistics(run, GenerateRequest.Listener.NONE)));
    }
  }

  /** What takes long ends soon. */
  public void stop() {
    closing = true;
  }

  @Override
  public void close() {
    runs.close();
  }
}
