package dev.loupe.serve;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonNull;
import com.google.gson.JsonObject;
import com.google.gson.JsonPrimitive;
import dev.loupe.Loupe;
import dev.loupe.attention.AttentionSelection;
import dev.loupe.attention.HeadRole;
import dev.loupe.attention.HeadScore;
import dev.loupe.attention.HeadStatistics;
import dev.loupe.export.AttentionFormat;
import dev.loupe.export.LensReport;
import dev.loupe.export.TemporaryFile;
import dev.loupe.export.page.Palette;
import dev.loupe.generate.GenerateRequest;
import dev.loupe.generate.Generation;
import dev.loupe.generate.Prompt;
import dev.loupe.generate.ReadListener;
import dev.loupe.generate.Token;
import dev.loupe.interpret.ActivationCache;
import dev.loupe.interpret.Comparison;
import dev.loupe.interpret.HeadSurvey;
import dev.loupe.model.ModelInfo;
import dev.loupe.ops.Mask;
import dev.loupe.serve.Runs.Run;
import dev.loupe.text.Count;
import dev.loupe.weights.config.Gpt2Config;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.CancellationException;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Supplier;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.jspecify.annotations.Nullable;

/**
 * What the page asks for, under {@code /api}: a run is written and read, kept, and then looked at
 * part by part. Everything below a run's path is a function of the path, so that a browser may keep
 * it.
 */
final class Workbench implements AutoCloseable {
  static final String RUNS = "/api/runs";
  private static final String INFO = "/api/info";
  private static final String HEADS = "/api/heads";
  private static final Pattern RUN = Pattern.compile(RUNS + "/([0-9a-f]{1,64})(?:/([a-z]{1,12}))?");
  private static final Set<String> PARTS =
      Set.of("thumbs", "tile", "rows", "stats", "lens", "compare", "export");

  /** Alternatives to each token that a run keeps. */
  static final int TOP = 5;

  private static final int MOST_SIDE = 256;

  /** Bytes of maps in a file: what a browser takes without complaint. */
  private static final long MOST_EXPORT = 64_000_000;

  /** Bytes of all files that are made and not yet taken. They lie on the disk. */
  private static final long MOST_FILES = 1L << 30;

  /** Bytes of a line of CSV, about; what JSON and npz take is less. */
  private static final int WEIGHT_IN_FILE = 40;

  private static final Map<String, String> FOR_EVER =
      Map.of("cache-control", "private, max-age=31536000, immutable");

  private final Loupe loupe;
  private final Gpt2Config config;
  private final String model;
  private final Runs runs;
  private final RunWriter writer;
  private final Places places;
  private final Duration timeout;
  private final Outbox outbox;
  private final Outbox files = new Outbox(MOST_FILES);
  private final ReentrantLock reading = new ReentrantLock(true);
  private final Map<String, String> answers = new ConcurrentHashMap<>(); // those of the model
  private volatile boolean closing;

  /**
   * @param places where what takes long waits, beside runs
   * @param timeout of a request, waiting included
   * @param outbox for large answers
   */
  Workbench(
      Loupe loupe,
      String model,
      Runs runs,
      RunWriter writer,
      Places places,
      Duration timeout,
      Outbox outbox) {
    this.loupe = loupe;
    this.model = model;
    this.runs = runs;
    this.writer = writer;
    this.places = places;
    this.timeout = timeout;
    this.outbox = outbox;
    config = loupe.info().config();
  }

  /** All that {@link #route} says. */
  static Set<String> routes() {
    Set<String> routes = new TreeSet<>(Set.of(INFO, HEADS, RUNS, RUNS + "/{id}"));
    PARTS.forEach(part -> routes.add(RUNS + "/{id}/" + part));
    return routes;
  }

  /** The path with a run's name left open, if there is something at it. */
  static Optional<String> route(String path) {
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
   * @throws ApiException if the request is wrong or can't be served
   */
  void answer(Exchange exchange) {
    try {
      switch (exchange.path()) {
        case INFO -> exchange.send(200, info());
        case HEADS -> {
          long deadline = deadline();
          json(exchange, inTurn(deadline, this::heads), Map.of());
        }
        case RUNS -> writer.answer(exchange);
        default -> run(exchange);
      }
    } catch (InterruptedException | CancellationException e) {
      throw Completions.closing();
    } catch (IllegalArgumentException e) { // a head or a token that is not there
      throw ApiException.invalid(400, null, String.valueOf(e.getMessage()));
    }
  }

  private static void json(Exchange exchange, String json, Map<String, String> more) {
    exchange.send(200, "application/json", json, more);
  }

  private JsonObject info() throws InterruptedException {
    ModelInfo info = loupe.info();
    JsonObject json = new JsonObject();
    json.addProperty("model", model);
    json.addProperty("sha256", info.sha256().orElse(null));
    json.addProperty("dtype", info.dtype());
    json.addProperty("backend", info.backend());
    json.addProperty("device", info.device());
    json.addProperty("n_layer", config.nLayer());
    json.addProperty("n_head", config.nHead());
    json.addProperty("n_embd", config.nEmbd());
    json.addProperty("n_ctx", config.nPositions());
    json.addProperty("vocab_size", config.vocabSize());
    json.add(
        "bos",
        config.bosTokenId() < 0 ? JsonNull.INSTANCE : new JsonPrimitive(config.bosTokenId()));
    json.addProperty("text", loupe.tokenizer().whyNoText().isEmpty());
    json.addProperty("threshold", HeadRole.THRESHOLD);
    JsonObject palettes = new JsonObject();
    palettes.add("light", palettes(Palette.SEQUENTIAL_LIGHT, Palette.DIVERGING_LIGHT));
    palettes.add("dark", palettes(Palette.SEQUENTIAL_DARK, Palette.DIVERGING_DARK));
    json.add("palettes", palettes);
    json.addProperty("example", writer.example().orElse(null));
    return json;
  }

  private static JsonArray palettes(Palette... palettes) {
    JsonArray all = new JsonArray();
    for (Palette palette : palettes) {
      JsonArray stops = new JsonArray();
      palette.stops().forEach(stops::add);
      all.add(stops);
    }
    return all;
  }

  private String heads() {
    return answers.computeIfAbsent(
        HEADS,
        _ -> {
          HeadSurvey survey = loupe.heads(Prompt.text(""), unlessClosing());
          JsonObject repeated = new JsonObject();
          repeated.add("ids", numbers(HeadSurvey.sequences(config, loupe.tokenizer()).getFirst()));
          repeated.addProperty("length", survey.onRepeated().repeated());
          JsonArray heads = new JsonArray();
          for (int layer = 0; layer < config.nLayer(); layer++) {
            for (int head = 0; head < config.nHead(); head++) {
              JsonObject one = new JsonObject();
              one.addProperty("layer", layer);
              one.addProperty("head", head);
              one.addProperty("role", survey.role(layer, head).map(HeadRole::key).orElse(null));
              JsonObject scores = new JsonObject();
              for (HeadScore score : HeadScore.values()) {
                if (!score.needsValueNorms()) {
                  scores.add(score.key(), number(survey.onRepeated().score(score, layer, head)));
                }
              }
              one.add("scores", scores);
              heads.add(one);
            }
          }
          JsonObject json = new JsonObject();
          json.add("repeated", repeated);
          json.add("heads", heads);
          return Exchange.GSON.toJson(json);
        });
  }

  private ReadListener unlessClosing() {
    return (layersDone, layers) -> !closing;
  }

  /** Ends a run when nobody waits for its answer any more. */
  private static GenerateRequest.Listener wanted(Exchange exchange) {
    return new GenerateRequest.Listener() {
      @Override
      public boolean reading(int layersDone, int layers) {
        return !exchange.isCancelled();
      }
    };
  }

  private static JsonArray numbers(int[] values) {
    JsonArray numbers = new JsonArray();
    for (int value : values) {
      numbers.add(value);
    }
    return numbers;
  }

  /** What is no number is null. */
  private static JsonElement number(double value) {
    return Double.isFinite(value) ? new JsonPrimitive((float) value) : JsonNull.INSTANCE;
  }

  private void run(Exchange exchange) throws InterruptedException {
    Matcher path = RUN.matcher(exchange.path());
    if (!path.matches()) {
      throw new IllegalStateException(exchange.path());
    }
    String id = path.group(1);
    Query query = new Query(exchange);
    String part = path.group(2) == null ? "" : path.group(2);
    long deadline = deadline();
    switch (part) {
      case "" -> {
        Run run = run(id);
        json(exchange, made(run, part, () -> describe(run)), FOR_EVER);
      }
      case "stats" -> {
        Run run = run(id);
        json(
            exchange,
            reading(
                exchange,
                deadline,
                0,
                () -> made(run, part, () -> statistics(run, wanted(exchange)))),
            FOR_EVER);
      }
      case "compare" -> json(exchange, compare(id, query), FOR_EVER);
      case "lens" -> {
        Run run = run(id);
        json(exchange, reading(exchange, deadline, 0, () -> lens(run, query)), FOR_EVER);
      }
      case "thumbs" -> {
        exchange.reserve(outbox, thumbsBytes(run(id).cache(), query), deadline);
        bytes(exchange, runs.look(all -> thumbs(all.run(id).cache(), query)));
      }
      case "tile" -> {
        exchange.reserve(outbox, MapPixels.MOST, deadline);
        bytes(exchange, runs.look(all -> tile(all, id, query)));
      }
      case "rows" -> {
        Run run = run(id);
        long bytes = (long) Float.BYTES * config.nLayer() * run.cache().heads() * length(run);
        bytes(
            exchange,
            reading(
                exchange,
                deadline,
                bytes,
                () -> runs.look(all -> rows(all.run(id).cache(), query))));
      }
      case "export" -> export(exchange, id, query, deadline);
      default -> throw new IllegalStateException(part);
    }
  }

  private static int length(Run run) {
    return run.spec().ids().size();
  }

  private long deadline() {
    return System.nanoTime() + timeout.toNanos();
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
    String answer = Exchange.GSON.toJson(made.get());
    return runs.look(
        all -> {
          all.keep(run, part, answer);
          return answer;
        });
  }

  /** Makes an answer. */
  private interface Making<T> {
    T make() throws InterruptedException;
  }

  /**
   * What takes as long as a run: it waits among them, and has its turn as one of them; but only one
   * of this kind at a time, so that the others are left for runs.
   *
   * @param bytes that the answer will have, if they may be many
   */
  private <T> T reading(Exchange exchange, long deadline, long bytes, Making<T> making)
      throws InterruptedException {
    try (Places.Place place = places.enter()) {
      exchange.reserve(outbox, bytes, deadline);
      return inTurn(
          deadline,
          () -> {
            place.await(deadline);
            return making.make();
          });
    }
  }

  /** What reads a text anew, one at a time. */
  private <T> T inTurn(long deadline, Making<T> making) throws InterruptedException {
    if (!reading.tryLock(deadline - System.nanoTime(), TimeUnit.NANOSECONDS)) {
      throw Places.tooLate();
    }
    try {
      return making.make();
    } finally {
      reading.unlock();
    }
  }

  private static JsonObject describe(Run run) {
    JsonObject json = run.spec().json();
    json.addProperty("n_head", run.cache().heads());
    json.addProperty("id", run.id());
    JsonArray tokens = new JsonArray();
    for (Token token : run.cache().tokens()) {
      tokens.add(token(token));
    }
    json.add("tokens", tokens);
    return json;
  }

  private static JsonObject token(Token token) {
    JsonObject json = new JsonObject();
    json.addProperty("id", token.id());
    json.addProperty("label", token.label());
    json.addProperty("bytes", token.bytes());
    json.addProperty("special", token.special());
    json.addProperty("generated", token.generated());
    json.add("logprob", number(token.logprob()));
    json.add("rank", token.rank() < 0 ? JsonNull.INSTANCE : new JsonPrimitive(token.rank()));
    JsonArray top = new JsonArray();
    for (Token.Candidate candidate : token.top()) {
      JsonObject one = new JsonObject();
      one.addProperty("id", candidate.id());
      one.addProperty("label", candidate.label());
      one.add("logprob", number(candidate.logprob()));
      top.add(one);
    }
    json.add("top", top);
    return json;
  }

  private JsonObject statistics(Run run, GenerateRequest.Listener listener) {
    requireCausal(run, "statistics are");
    GenerateRequest request =
        run.spec()
            .writing()
            .tokens(0)
            .attention(AttentionSelection.all().headStatisticsOnly())
            .listener(listener);
    HeadStatistics all = loupe.run(request).getFirst().headStatistics().orElseThrow();
    JsonObject scores = new JsonObject();
    for (HeadScore score : HeadScore.values()) {
      if (score.needsValueNorms()) {
        continue;
      }
      JsonArray layers = new JsonArray();
      for (int layer : all.layers()) {
        JsonArray heads = new JsonArray();
        for (int head : all.heads()) {
          heads.add(number(all.score(score, layer, head)));
        }
        layers.add(heads);
      }
      scores.add(score.key(), layers);
    }
    JsonObject json = new JsonObject();
    json.addProperty("tokens", run.spec().ids().size());
    json.add("scores", scores);
    return json;
  }

  private static void requireCausal(Run run, String what) {
    if (run.spec().mask() != Mask.CAUSAL) {
      throw ApiException.invalid(400, null, what + " of runs with the causal mask");
    }
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
          String answer = compare(before, after);
          all.keep(after, Runs.with(before), answer);
          return answer;
        });
  }

  private static String compare(Run before, Run after) {
    Comparison comparison = Comparison.of(before.cache(), after.cache());
    JsonArray divergences = new JsonArray();
    comparison.divergences().forEach(d -> divergences.add(number(d)));
    JsonArray variation = new JsonArray();
    for (List<Double> layer : comparison.maps()) {
      JsonArray heads = new JsonArray();
      layer.forEach(head -> heads.add(number(head)));
      variation.add(heads);
    }
    JsonObject json = new JsonObject();
    json.add("divergences", divergences);
    json.add("variation", variation.isEmpty() ? JsonNull.INSTANCE : variation);
    return Exchange.GSON.toJson(json);
  }

  private String lens(Run run, Query query) {
    if (!run.spec().isPlain()) {
      throw ApiException.invalid(400, null, "the lens is of the model as it is, without changes");
    }
    int position = query.number("q", run.spec().ids().size() - 1, 0, Integer.MAX_VALUE);
    int target = query.number("target", -1, 0, config.vocabSize() - 1);
    int top = query.number("top", TOP, 0, 20);
    return LensReport.json(loupe.lens(run.spec().prompt(), position, target, top));
  }

  private static long thumbsBytes(ActivationCache cache, Query query) {
    int[] layers = query.layers("layers", cache.layers());
    long side = Math.min(query.number("side", 64, 1, MOST_SIDE), cache.tokens().size());
    return (long) (layers[1] - layers[0]) * cache.heads() * side * side;
  }

  private static byte[] thumbs(ActivationCache cache, Query query) {
    int[] layers = query.layers("layers", cache.layers());
    int side = query.number("side", 64, 1, MOST_SIDE);
    return MapPixels.thumbs(cache, layers[0], layers[1], side);
  }

  private static byte[] tile(Runs all, String id, Query query) {
    ActivationCache cache = all.run(id).cache();
    int tokens = cache.tokens().size();
    int[] queries = query.range("r", tokens);
    int[] keys = query.range("c", tokens);
    MapPixels.Part part =
        new MapPixels.Part(
            query.number("l", 0, 0, cache.layers() - 1),
            query.number("h", 0, 0, cache.heads() - 1),
            queries[0],
            queries[1],
            keys[0],
            keys[1],
            query.number("by", 1, 1, tokens));
    if ((long) part.rows() * part.columns() > MapPixels.MOST) {
      throw ApiException.invalid(
          400,
          null,
          "%d x %d: a tile has at most %d pixels"
              .formatted(part.rows(), part.columns(), MapPixels.MOST));
    }
    String minus = query.optionalId("minus");
    return minus == null
        ? MapPixels.part(cache, part)
        : MapPixels.difference(cache, all.run(minus).cache(), part);
  }

  /** [layers][heads][keys] of one query, those that are asked for. */
  private static byte[] rows(ActivationCache cache, Query query) {
    int at = query.number("q", cache.tokens().size() - 1, 0, cache.tokens().size() - 1);
    int layer = query.number("l", -1, 0, cache.layers() - 1);
    int head = query.number("h", -1, 0, cache.heads() - 1);
    int[] heads = head < 0 ? new int[cache.heads()] : new int[] {head};
    if (head < 0) {
      Arrays.setAll(heads, h -> h);
    }
    int first = Math.max(0, layer);
    int end = layer < 0 ? cache.layers() : layer + 1;
    int keys = cache.keys(at);
    ByteBuffer bytes =
        ByteBuffer.allocate(Float.BYTES * (end - first) * heads.length * keys)
            .order(ByteOrder.LITTLE_ENDIAN);
    for (int l = first; l < end; l++) {
      cache.rebuild(
          l,
          heads,
          at,
          at + 1,
          (_, _, row) -> {
            for (int key = 0; key < keys; key++) {
              bytes.putFloat(row[key]);
            }
          });
    }
    return bytes.array();
  }

  private void export(Exchange exchange, String id, Query query, long deadline)
      throws InterruptedException {
    String as = query.text("as");
    AttentionFormat format =
        switch (as) {
          case "npz" -> AttentionFormat.NPZ;
          case "json" -> AttentionFormat.JSON;
          case "csv" -> AttentionFormat.CSV;
          default -> throw ApiException.invalid(400, null, "as is npz, json or csv");
        };
    int layer = query.number("l", -1, 0, config.nLayer() - 1);
    int head = query.number("h", -1, 0, Integer.MAX_VALUE);
    Run run = run(id);
    requireCausal(run, "files are written");
    long maps = (layer < 0 ? config.nLayer() : 1L) * (head < 0 ? run.cache().heads() : 1L);
    requireSmall(maps, length(run));
    String name =
        "loupe-%s%s%s.%s"
            .formatted(
                model.replaceAll("[^A-Za-z0-9._-]+", "-"),
                layer < 0 ? "" : "-" + layer,
                head < 0 ? "" : (layer < 0 ? "-all." : ".") + head,
                as);
    String type =
        switch (format) {
          case CSV -> "text/csv; charset=utf-8";
          case JSON -> "application/json; charset=utf-8";
          default -> "application/octet-stream";
        };
    Map<String, String> headers =
        Map.of("content-disposition", "attachment; filename=\"%s\"".formatted(name));
    TemporaryFile file = null;
    try {
      try (Places.Place place = places.enter()) {
        long weights = maps * length(run) * (length(run) + 1L) / 2;
        exchange.reserve(files, weights * WEIGHT_IN_FILE, deadline);
        file =
            inTurn(
                deadline,
                () -> {
                  place.await(deadline);
                  return file(exchange, run, format, layer, head);
                });
      }
      try (InputStream content = file.open()) {
        exchange.send(200, type, file.bytes(), content, headers);
      }
    } catch (IOException e) {
      throw new UncheckedIOException(e); // as where memory ends: the operator is told
    } finally {
      if (file != null) {
        file.close();
      }
    }
  }

  private static void requireSmall(long maps, long tokens) {
    long bytes = maps * tokens * tokens * Float.BYTES;
    if (bytes > MOST_EXPORT) {
      throw ApiException.invalid(
          400,
          null,
          String.format(
              Locale.ROOT,
              "%s of %s would be %.0f MB, more than a browser should hold: choose a layer or a"
                  + " head, or use loupe attention",
              Count.of(maps, "map"),
              Count.of(tokens, "token"),
              bytes / 1e6));
    }
  }

  private TemporaryFile file(
      Exchange exchange, Run run, AttentionFormat format, int layer, int head) {
    AttentionSelection selection = AttentionSelection.all();
    if (layer >= 0) {
      selection = selection.layers(layer);
    }
    if (head >= 0) {
      selection = selection.heads(head);
    }
    GenerateRequest request =
        run.spec().writing().tokens(0).logprobs(0).attention(selection).listener(wanted(exchange));
    Generation read = loupe.run(request).getFirst();
    try {
      return format.temporary(read);
    } catch (IOException e) {
      throw ApiException.failed(500, null, "the file could not be made: " + e.getMessage());
    }
  }

  /** Makes what the page asks for first, before anybody does. */
  void prepare() throws InterruptedException {
    Optional<String> _ = writer.example();
    String _ = inTurn(deadline(), this::heads);
  }

  /** What takes long ends soon. */
  void stop() {
    closing = true;
  }

  @Override
  public void close() {
    runs.close();
  }

  /** The parameters of a request. */
  private record Query(Exchange exchange) {
    String text(String name) {
      String value = exchange.parameter(name);
      if (value == null) {
        throw ApiException.field(name, null, "%s is missing".formatted(name));
      }
      return value;
    }

    String id(String name) {
      String value = text(name);
      if (!value.matches("[0-9a-f]{1,64}")) {
        throw ApiException.field(name, null, "%s is not the name of a run".formatted(name));
      }
      return value;
    }

    @Nullable String optionalId(String name) {
      return exchange.parameter(name) == null ? null : id(name);
    }

    int number(String name, int otherwise, int least, int most) {
      String value = exchange.parameter(name);
      if (value == null) {
        return otherwise;
      }
      try {
        int number = Integer.parseInt(value);
        if (number >= least && number <= most) {
          return number;
        }
      } catch (NumberFormatException e) {
        // said below
      }
      throw ApiException.field(
          name, null, "%s is not a whole number from %d to %d".formatted(name, least, most));
    }

    /** Two numbers with a dash between them; null if there is no such parameter. */
    private int @Nullable [] pair(String name) {
      String value = exchange.parameter(name);
      if (value == null) {
        return null;
      }
      Matcher pair = Pattern.compile("([0-9]{1,9})-([0-9]{1,9})").matcher(value);
      if (!pair.matches()) {
        throw ApiException.field(name, null, "%s is not a range such as 0-256".formatted(name));
      }
      return new int[] {Integer.parseInt(pair.group(1)), Integer.parseInt(pair.group(2))};
    }

    /** From and one past the end, clipped to {@code most}; all without the parameter. */
    int[] range(String name, int most) {
      int[] pair = pair(name);
      if (pair == null) {
        return new int[] {0, most};
      }
      int to = Math.min(pair[1], most);
      if (pair[0] >= to) {
        throw ApiException.field(name, null, "nothing of %s is there".formatted(name));
      }
      return new int[] {pair[0], to};
    }

    /** Likewise, but the parameter's end is the last that is meant. */
    int[] layers(String name, int most) {
      int[] pair = pair(name);
      if (pair == null) {
        return new int[] {0, most};
      }
      if (pair[0] > pair[1] || pair[1] >= most) {
        throw ApiException.field(
            name, null, "%s: the model has layers 0 to %d".formatted(name, most - 1));
      }
      return new int[] {pair[0], pair[1] + 1};
    }
  }
}
