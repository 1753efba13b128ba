package dev.loupe.serve;

import static java.nio.charset.StandardCharsets.UTF_8;

import com.google.gson.JsonArray;
import com.google.gson.JsonObject;
import dev.loupe.Loupe;
import dev.loupe.generate.Scheduler;
import dev.loupe.serve.completions.Chat;
import dev.loupe.serve.completions.Completions;
import dev.loupe.serve.completions.Tokens;
import dev.loupe.serve.http.ApiException;
import dev.loupe.serve.http.Exchange;
import dev.loupe.serve.http.Metrics;
import dev.loupe.serve.http.Outbox;
import dev.loupe.serve.http.Places;
import dev.loupe.serve.workbench.Workbench;
import java.net.URLEncoder;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeSet;
import java.util.function.Consumer;

/**
 * What there is to ask for, by exact paths. Errors have the form of OpenAI's: {@code {"error":
 * {"message", "type", "param", "code"}}}.
 */
final class Api implements AutoCloseable {
  private static final String MODELS = "/v1/models";
  private static final String COMPLETIONS = "/v1/completions";
  private static final String HEALTH = "/healthz";
  private static final String METRICS = "/metrics";
  private static final String OPENAPI = "/openapi.json";
  private static final String CHAT = "/v1/chat/completions";
  private static final String PAGE = "page";
  private static final String OTHER = "other";

  private static final Set<String> PATHS =
      Set.of(
          MODELS,
          COMPLETIONS,
          CHAT,
          HEALTH,
          METRICS,
          OPENAPI,
          Tokens.TOKENIZE,
          Tokens.DETOKENIZE,
          Tokens.INFO);

  /** What needs no key. */
  private static final Set<String> OPEN = Set.of(HEALTH, PAGE, OPENAPI);

  /** Bytes of large answers that clients have still to take. */
  private static final long MOST_UNREAD = 64L << 20;

  private final Access access;
  private final Scheduler scheduler;
  private final Places places;
  private final Metrics metrics;
  private final Completions completions;
  private final Optional<Chat> chat;
  private final Tokens tokens;
  private final Page page = new Page();
  private final Workbench workbench;
  private final String openApi = Page.read("openapi.json");
  private final String model;
  private final Consumer<String> failures;
  private final long started = System.currentTimeMillis() / 1000;

  Api(Loupe loupe, ServerOptions options, boolean loopback, Consumer<String> failures) {
    this.failures = failures;
    access = new Access(options, loopback);
    scheduler = loupe.scheduler(options.slots());
    places = new Places(options.queue(), scheduler.slots());
    metrics = new Metrics(places);
    model = options.model();
    Outbox outbox = new Outbox(MOST_UNREAD);
    completions =
        new Completions(loupe, scheduler, model, places, metrics, options.timeout(), outbox);
    chat = options.chat().map(template -> new Chat(template, loupe, model));
    tokens = new Tokens(loupe, model, options.chat(), places, options.timeout(), outbox);
    workbench = new Workbench(loupe, scheduler, model, places, metrics, options.timeout(), outbox);
  }

  /** All paths but the page's, a name in them left open. */
  static Set<String> routes() {
    Set<String> routes = new TreeSet<>(PATHS);
    routes.addAll(Workbench.routes());
    return routes;
  }

  int slots() {
    return scheduler.slots();
  }

  Places places() {
    return places;
  }

  /** For when nothing is being answered. */
  @Override
  public void close() {
    workbench.close();
    scheduler.close();
  }

  /** Answers, whatever happens. */
  void handle(Exchange exchange) {
    String route = route(exchange.request().path());
    try {
      access.check(exchange, OPEN.contains(route));
      answer(exchange, route);
    } catch (ApiException e) {
      exchange.send(e, headers(e.status(), route));
    } catch (OutOfMemoryError e) {
      exchange.send(
          ApiException.failed(503, "out_of_memory", "no memory for this request: ask for less"),
          Map.of());
    } catch (RuntimeException | Error e) { // a GPU that fails, a defect: not the client's business
      failures.accept("%s: %s".formatted(e.getClass().getSimpleName(), e.getMessage()));
      exchange.send(
          ApiException.failed(500, null, "the run failed, and the server's operator was told why"),
          Map.of());
    }
    if (exchange.isConnected()) {
      metrics.answered(route, exchange.status());
    } else {
      metrics.cancelled();
    }
  }

  /** What an error of this status has to say beside its body (RFC 9110, section 15). */
  private static Map<String, String> headers(int status, String route) {
    return switch (status) {
      case 401 -> Map.of("www-authenticate", "Bearer");
      case 405 -> Map.of("allow", methodOf(route));
      case 429 -> Map.of("retry-after", "1");
      default -> Map.of();
    };
  }

  /** The path, a name in it left open, if there is something; one word for all others. */
  private String route(String path) {
    if (path.startsWith(MODELS + "/")) {
      return MODELS;
    }
    if (page.has(path)) {
      return PAGE;
    }
    return PATHS.contains(path) ? path : Workbench.route(path).orElse(OTHER);
  }

  private static String methodOf(String route) {
    return switch (route) {
      case COMPLETIONS, CHAT, Workbench.RUNS, Tokens.TOKENIZE, Tokens.DETOKENIZE -> "POST";
      default -> "GET";
    };
  }

  private void answer(Exchange exchange, String route) {
    if (route.equals(OTHER)) {
      throw ApiException.invalid(
          404,
          "not_found",
          "nothing is served at this path; %s lists what is served".formatted(OPENAPI));
    }
    if (!exchange.request().method().equals(methodOf(route))) {
      throw ApiException.invalid(405, null, "%s takes %s alone".formatted(route, methodOf(route)));
    }
    switch (route) {
      case COMPLETIONS -> completions.answer(exchange);
      case CHAT -> completions.answer(exchange, chat.orElseThrow(this::noChat));
      case Tokens.TOKENIZE, Tokens.DETOKENIZE, Tokens.INFO -> tokens.answer(exchange, route);
      case OPENAPI -> exchange.send(200, "application/json", openApi, Map.of());
      case METRICS -> exchange.send(200, "text/plain; version=0.0.4", metrics.text(), Map.of());
      case HEALTH -> {
        JsonObject health = new JsonObject();
        health.addProperty("status", "ok");
        health.addProperty("model", model);
        exchange.send(200, health);
      }
      case MODELS -> models(exchange);
      case PAGE -> page.send(exchange);
      default -> workbench.answer(exchange);
    }
  }

  private ApiException noChat() {
    return ApiException.invalid(
        400,
        "no_chat_format",
        "the model %s has no chat format: it continues texts, by %s".formatted(model, COMPLETIONS));
  }

  private void models(Exchange exchange) {
    JsonObject known = new JsonObject();
    known.addProperty("id", model);
    known.addProperty("object", "model");
    known.addProperty("created", started);
    known.addProperty("owned_by", "loupe");
    String path = exchange.request().path();
    if (path.equals(MODELS)) {
      JsonArray data = new JsonArray();
      data.add(known);
      JsonObject list = new JsonObject();
      list.addProperty("object", "list");
      list.add("data", data);
      exchange.send(200, list);
    } else if (path.equals(MODELS + "/" + model)
        || path.equals(MODELS + "/" + URLEncoder.encode(model, UTF_8))) {
      exchange.send(200, known);
    } else {
      throw ApiException.noSuchModel("there is no such model here, only " + model);
    }
  }

  /** Makes what the page asks for first; what fails then is said to who asks. */
  void prepare() {
    try {
      workbench.prepare();
    } catch (InterruptedException | RuntimeException e) {
      // whoever opens the page is told
    }
  }

  /** What takes long ends soon. */
  void stop() {
    workbench.stop();
  }
}
