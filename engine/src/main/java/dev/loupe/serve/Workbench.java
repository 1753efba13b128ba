package dev.loupe.serve;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonNull;
import com.google.gson.JsonObject;
import com.google.gson.JsonPrimitive;
import dev.loupe.ActivationCache;
import dev.loupe.Comparison;
import dev.loupe.Generation;
import dev.loupe.HeadSurvey;
import dev.loupe.Loupe;
import dev.loupe.ModelInfo;
import dev.loupe.Request;
import dev.loupe.Token;
import dev.loupe.attention.AttentionSelection;
import dev.loupe.attention.HeadRole;
import dev.loupe.attention.HeadScore;
import dev.loupe.attention.HeadStatistics;
import dev.loupe.export.AttentionFormat;
import dev.loupe.export.LensReport;
import dev.loupe.export.Palette;
import dev.loupe.ops.Mask;
import dev.loupe.serve.Runs.Run;
import dev.loupe.weights.Gpt2Config;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.CancellationException;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Function;
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

  private static final Map<String, String> FOR_EVER =
      Map.of("cache-control", "private, max-age=31536000, immutable");

  private final Loupe loupe;
  private final Gpt2Config config;
  private final String model;
  private final Runs runs;
  private final RunWriter writer;
  private final ReentrantLock reading = new ReentrantLock(true);
  private final Map<String, String> answers = new ConcurrentHashMap<>(); // those of the model
  private volatile boolean closing;

  Workbench(Loupe loupe, String model, Runs runs, RunWriter writer) {
    this.loupe = loupe;
    this.model = model;
    this.runs = runs;
    this.writer = writer;
    config = loupe.info().config();
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
        case HEADS -> json(exchange, inTurn(this::heads), Map.of());
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
          HeadSurvey survey = loupe.heads(Request.text("").listener(unlessClosing()));
          JsonObject repeated = new JsonObject();
          repeated.add("ids", numbers(HeadSurvey.sequences(loupe).getFirst()));
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

  private Request.Listener unlessClosing() {
    return new Request.Listener() {
      @Override
      public boolean reading(int layersDone, int layers) {
        return !closing;
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
    switch (part) {
      case "" -> json(exchange, made(run(id), "", Workbench::describe), FOR_EVER);
      case "stats" -> {
        Run run = run(id);
        json(exchange, inTurn(() -> made(run, part, this::statistics)), FOR_EVER);
      }
      case "compare" -> json(exchange, runs.look(all -> compare(all, id, query)), FOR_EVER);
      case "lens" -> {
        Run run = run(id);
        json(exchange, inTurn(() -> lens(run, query)), FOR_EVER);
      }
      case "thumbs" -> bytes(exchange, runs.look(all -> thumbs(all.run(id).cache(), query)));
      case "tile" -> bytes(exchange, runs.look(all -> tile(all, id, query)));
      case "rows" -> bytes(exchange, runs.look(all -> rows(all.run(id).cache(), query)));
      case "export" -> export(exchange, id, query);
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
  private static String made(Run run, String part, Function<Run, JsonObject> made) {
    return run.answers().computeIfAbsent(part, _ -> Exchange.GSON.toJson(made.apply(run)));
  }

  /**
   * What reads a text anew, one at a time: it takes long, and who asks for a part of a map that is
   * kept need not wait for it.
   */
  private <T> T inTurn(Supplier<T> reading) throws InterruptedException {
    this.reading.lockInterruptibly();
    try {
      return reading.get();
    } finally {
      this.reading.unlock();
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

  private JsonObject statistics(Run run) {
    requireCausal(run, "statistics are");
    Request request =
        run.spec().request().tokens(0).attention(AttentionSelection.all().headStatisticsOnly());
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

  private static String compare(Runs all, String id, Query query) {
    Run after = all.run(id);
    Run before = all.run(query.id("with"));
    return after
        .answers()
        .computeIfAbsent(
            "compare " + before.id(),
            _ -> {
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
            });
  }

  private String lens(Run run, Query query) {
    if (!run.spec().isPlain()) {
      throw ApiException.invalid(400, null, "the lens is of the model as it is, without changes");
    }
    int position = query.number("q", run.spec().ids().size() - 1, 0, Integer.MAX_VALUE);
    int target = query.number("target", -1, 0, config.vocabSize() - 1);
    int top = query.number("top", TOP, 0, 20);
    return LensReport.json(loupe.lens(run.spec().request(), position, target, top));
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
          (_, _, _, _, row) -> {
            for (int key = 0; key < keys; key++) {
              bytes.putFloat(row[key]);
            }
          });
    }
    return bytes.array();
  }

  private void export(Exchange exchange, String id, Query query) throws InterruptedException {
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
    byte[] file = inTurn(() -> file(run, format, layer, head));
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
    exchange.send(
        200,
        type,
        file,
        Map.of("content-disposition", "attachment; filename=\"%s\"".formatted(name)));
  }

  private byte[] file(Run run, AttentionFormat format, int layer, int head) {
    requireCausal(run, "files are written");
    long tokens = run.spec().ids().size();
    long maps = (layer < 0 ? config.nLayer() : 1L) * (head < 0 ? run.cache().heads() : 1L);
    long bytes = maps * tokens * tokens * Float.BYTES;
    if (bytes > MOST_EXPORT) {
      throw ApiException.invalid(
          400,
          null,
          String.format(
              Locale.ROOT,
              "%d maps of %d tokens are %.0f MB, more than a browser should hold: choose a layer or a"
                  + " head, or use loupe attention",
              maps,
              tokens,
              bytes / 1e6));
    }
    AttentionSelection selection = AttentionSelection.all();
    if (layer >= 0) {
      selection = selection.layers(layer);
    }
    if (head >= 0) {
      selection = selection.heads(head);
    }
    Generation read =
        loupe.run(run.spec().request().tokens(0).logprobs(0).attention(selection)).getFirst();
    try {
      return format.bytes(read);
    } catch (IOException e) {
      throw ApiException.failed(500, null, "the file could not be made: " + e.getMessage());
    }
  }

  /** Makes what the page asks for first, before anybody does. */
  void prepare() throws InterruptedException {
    Optional<String> _ = writer.example();
    String _ = inTurn(this::heads);
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
