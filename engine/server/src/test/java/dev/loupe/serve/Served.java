package dev.loupe.serve;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assertions.fail;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import dev.loupe.Backend;
import dev.loupe.Loupe;
import dev.loupe.Options;
import dev.loupe.model.Golden;
import java.io.IOException;
import java.net.InetAddress;
import java.net.Socket;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.function.BooleanSupplier;
import java.util.function.Consumer;

/** The demo model on a server of its own, and a client of it. */
public record Served(Loupe loupe, Server server, HttpClient client) implements AutoCloseable {
  static final String MODEL = "shakespeare";

  static ServerOptions options() {
    return new ServerOptions(
        "127.0.0.1", 0, Optional.empty(), 16, 8, Duration.ofSeconds(60), MODEL);
  }

  public static Loupe demo() throws IOException {
    return Loupe.open(Golden.DEMO_MODEL, Options.defaults().backend(Backend.CPU));
  }

  static Served start(ServerOptions options) throws IOException {
    return start(options, Duration.ofSeconds(30));
  }

  static Served start(ServerOptions options, Duration patience) throws IOException {
    return start(demo(), options, why -> fail(why), patience);
  }

  static Served start(
      Loupe loupe, ServerOptions options, Consumer<String> failures, Duration patience) {
    try {
      Server server = Server.start(loupe, options, failures, patience);
      return new Served(loupe, server, HttpClient.newHttpClient());
    } catch (RuntimeException e) {
      loupe.close();
      throw e;
    }
  }

  /** An answer of JSON. */
  record Answer(int status, JsonObject json, HttpResponse<String> response) {
    Answer has(int expected) {
      assertEquals(expected, status, response.body());
      return this;
    }

    JsonObject choice(int index) {
      return json.getAsJsonArray("choices").get(index).getAsJsonObject();
    }

    String text(int index) {
      return choice(index).get("text").getAsString();
    }

    /** It is an error whose message has these words. */
    JsonObject refused(int expected, String... words) {
      has(expected);
      JsonObject error = json.getAsJsonObject("error");
      assertEquals(List.of("message", "type", "param", "code"), List.copyOf(error.keySet()));
      String message = error.get("message").getAsString();
      for (String word : words) {
        assertTrue(message.contains(word), () -> "no <" + word + "> in: " + message);
      }
      return error;
    }
  }

  HttpRequest.Builder to(String path) {
    return HttpRequest.newBuilder(URI.create(server.address() + path));
  }

  HttpResponse<String> send(HttpRequest.Builder request) {
    try {
      return client.send(request.build(), BodyHandlers.ofString(UTF_8));
    } catch (IOException e) {
      throw new AssertionError(e);
    } catch (InterruptedException e) {
      throw new IllegalStateException(e);
    }
  }

  Answer ask(HttpRequest.Builder request) {
    HttpResponse<String> response = send(request);
    assertEquals(
        "application/json; charset=utf-8",
        response.headers().firstValue("content-type").orElse(""),
        response.body());
    return new Answer(
        response.statusCode(), JsonParser.parseString(response.body()).getAsJsonObject(), response);
  }

  Answer get(String path) {
    return ask(to(path));
  }

  /** Posts to completions; {@code body} may have ' for ". */
  Answer complete(String body) {
    return ask(to("/v1/completions").POST(BodyPublishers.ofString(body.replace('\'', '"'))));
  }

  /** Posts to {@code path}; {@code body} may have ' for ". */
  Answer post(String path, String body) {
    return ask(to(path).POST(BodyPublishers.ofString(body.replace('\'', '"'))));
  }

  /** The events of a stream but the last, which says that it is done. */
  List<JsonObject> stream(String body) {
    return stream("/v1/completions", body);
  }

  /** Likewise, of another path. */
  List<JsonObject> stream(String path, String body) {
    HttpResponse<String> response =
        send(to(path).POST(BodyPublishers.ofString(body.replace('\'', '"'))));
    assertEquals(200, response.statusCode(), response.body());
    assertEquals(
        "text/event-stream; charset=utf-8",
        response.headers().firstValue("content-type").orElseThrow());
    List<JsonObject> chunks = new ArrayList<>();
    String[] events = response.body().split("\n\n", -1);
    assertEquals("", events[events.length - 1], "each event ends with an empty line");
    assertEquals("data: [DONE]", events[events.length - 2]);
    for (int i = 0; i < events.length - 2; i++) {
      assertTrue(events[i].startsWith("data: {"), events[i]);
      chunks.add(JsonParser.parseString(events[i].substring(6)).getAsJsonObject());
    }
    return chunks;
  }

  /** The text of one choice of a stream. */
  static String joined(List<JsonObject> chunks, int index) {
    StringBuilder text = new StringBuilder();
    for (JsonObject chunk : chunks) {
      JsonArray choices = chunk.getAsJsonArray("choices");
      for (JsonElement each : choices) {
        JsonObject choice = each.getAsJsonObject();
        if (choice.get("index").getAsInt() == index) {
          text.append(choice.get("text").getAsString());
        }
      }
    }
    return text.toString();
  }

  /** A connection that says {@code text} with Windows line ends, as HTTP has them. */
  Socket socket(String text) throws IOException {
    Socket socket = new Socket(InetAddress.getLoopbackAddress(), server.port());
    socket.setSoTimeout(20_000);
    socket.getOutputStream().write(text.replace("\n", "\r\n").getBytes(UTF_8));
    return socket;
  }

  /** A connection that asks for a completion. */
  Socket asking(String body) throws IOException {
    String json = body.replace('\'', '"');
    return socket(
        "POST /v1/completions HTTP/1.1\nHost: localhost\nContent-Length: %d\n\n%s"
            .formatted(json.length(), json));
  }

  String metric(String name) {
    return send(to("/metrics"))
        .body()
        .lines()
        .filter(line -> line.startsWith(name + " "))
        .map(line -> line.substring(name.length() + 1))
        .findFirst()
        .orElse("none");
  }

  /** Waits until something is so. */
  public static void await(String what, BooleanSupplier condition) throws InterruptedException {
    long deadline = System.nanoTime() + 60_000_000_000L;
    while (!condition.getAsBoolean()) {
      assertTrue(System.nanoTime() < deadline, "never: " + what);
      Thread.sleep(2);
    }
  }

  /** Nothing runs, waits or is being answered. */
  void awaitIdle() throws InterruptedException {
    await(
        "idle",
        () ->
            server.places().running() == 0
                && server.places().waiting() == 0
                && server.exchanges() == 0);
  }

  @Override
  public void close() {
    client.close();
    server.close();
    loupe.close();
  }
}
