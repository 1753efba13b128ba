package dev.loupe.serve;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.Backend;
import dev.loupe.Loupe;
import dev.loupe.Options;
import dev.loupe.TinyModel;
import java.io.IOException;
import java.net.Socket;
import java.net.http.HttpResponse;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Locale;
import java.util.Optional;
import java.util.concurrent.CopyOnWriteArrayList;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** Whom the server answers. */
@Timeout(200)
class AccessTest {
  /** On loopback, without a key. */
  private static Served plain;

  @BeforeAll
  static void start() throws IOException {
    plain = Served.start(options("127.0.0.1", ""));
  }

  @AfterAll
  static void stop() {
    plain.close();
  }

  private static ServerOptions options(String host, String key) {
    return new ServerOptions(
        host, 0, Optional.of(key).filter(k -> !k.isEmpty()), 4, 8, Duration.ofSeconds(60), "m");
  }

  private static int status(Served served, String headers) throws IOException {
    String answer = said(served, "GET /v1/models HTTP/1.1\n" + headers + "Connection: close\n\n");
    assertFalse(answer.toLowerCase(Locale.ROOT).contains("access-control"), answer);
    return Integer.parseInt(answer.substring(9, 12));
  }

  private static String said(Served served, String request) throws IOException {
    try (Socket socket = served.socket(request)) {
      return new String(socket.getInputStream().readAllBytes(), UTF_8);
    }
  }

  @ParameterizedTest
  @CsvSource({
    "localhost, , 200",
    "LocalHost:8080, , 200",
    "127.0.0.1:1, , 200",
    "[::1]:8080, , 200",
    "[::1], , 200",
    "evil.example, , 421",
    "evil.example:8080, , 421",
    "localhost.evil.example, , 421",
    "evil.example#localhost, , 421",
    "localhost@evil.example, , 421",
    "127.0.0.1.nip.example, , 421",
    "'', , 421",
    "localhost:8080, http://localhost:8080, 200",
    "localhost:8080, http://127.0.0.1:3000, 200",
    "localhost:8080, https://[::1], 200",
    "localhost:8080, http://evil.example, 403",
    "localhost:8080, http://localhost.evil.example, 403",
    "localhost:8080, http://localhost@evil.example, 403",
    "localhost:8080, http://evil.example/localhost, 403",
    "localhost:8080, file://localhost, 403",
    "localhost:8080, null, 403",
    "localhost:8080, '', 403",
    "localhost:8080, ::, 403",
    "evil.example, http://evil.example, 421",
  })
  void onLoopbackTheHostIsCheckedAndAlwaysTheOrigin(String host, String origin, int expected)
      throws IOException {
    String headers = "Host: %s\n".formatted(host == null ? "" : host);
    if (origin != null) {
      headers += "Origin: %s\n".formatted(origin);
    }
    assertEquals(expected, status(plain, headers));
  }

  @Test
  void wantsOneHost() throws IOException {
    assertEquals(400, status(plain, ""));
    assertEquals(400, status(plain, "Host: localhost\nHost: localhost\n"));
    assertEquals(
        403,
        status(plain, "Host: localhost\nOrigin: http://localhost\nOrigin: http://evil.example\n"));
  }

  @Test
  void wantsTheKeyWhereThereIsOne() throws IOException {
    try (Served served = Served.start(options("127.0.0.1", "s3cret"))) {
      served.get("/healthz").has(200);
      for (String path : new String[] {"/v1/models", "/v1/completions", "/metrics", "/x"}) {
        assertEquals(
            "invalid_api_key", served.get(path).refused(401, "API key").get("code").getAsString());
      }
      for (String wrong :
          new String[] {
            "Bearer s3cre", "Bearer s3crets", "Bearer", "s3cret", "Basic s3cret", "Bearer S3CRET"
          }) {
        served.ask(served.to("/v1/models").header("Authorization", wrong)).refused(401);
      }
      HttpResponse<String> asked = served.send(served.to("/v1/models"));
      assertEquals("Bearer", asked.headers().firstValue("www-authenticate").orElse(""));
      served.ask(served.to("/v1/models").header("Authorization", "Bearer s3cret")).has(200);
      served.ask(served.to("/v1/models").header("Authorization", "bearer s3cret")).has(200);
    }
  }

  @Test
  void tellsTheOperatorAndNotTheClientWhyARunFailed(@TempDir Path folder) throws IOException {
    TinyModel.in(folder).poke("h.0.attn.c_attn.weight", 3, Float.NaN);
    List<String> told = new CopyOnWriteArrayList<>();
    Loupe broken = Loupe.open(folder, Options.defaults().backend(Backend.CPU));
    try (Served served =
        Served.start(broken, options("127.0.0.1", ""), told::add, Duration.ofSeconds(30))) {
      for (int i = 1; i <= 2; i++) {
        String message =
            served.complete("{'prompt': 'x'}").refused(500).get("message").getAsString();
        assertFalse(message.contains(folder.toString()), message);
        assertEquals(i, told.size());
        assertTrue(told.getLast().contains("h.0.attn.c_attn.weight holds NaN"), told.toString());
      }
      served.get("/healthz").has(200);
      assertEquals(0, served.server().places().running());
    }
  }

  @Test
  void listensWiderOnlyOnDemand() throws IOException {
    try (Served served = Served.start(options("127.0.0.1", ""))) {
      assertFalse(served.server().isOpenToOthers());
      assertEquals("http://127.0.0.1:" + served.server().port(), served.server().address());
    }
    try (Served served = Served.start(options("0.0.0.0", ""))) {
      assertTrue(served.server().isOpenToOthers());
      assertEquals(200, status(served, "Host: my.machine.example\n"));
      assertEquals(403, status(served, "Host: my.machine.example\nOrigin: http://evil.example\n"));
      assertEquals(
          200, status(served, "Host: my.machine.example\nOrigin: http://my.machine.example\n"));
    }
  }

  @Test
  void saysThatAPortIsTaken() throws IOException {
    try (Served served = Served.start(options("127.0.0.1", ""))) {
      ServerOptions same =
          new ServerOptions(
              "127.0.0.1",
              served.server().port(),
              Optional.empty(),
              1,
              8,
              Duration.ofSeconds(1),
              "m");
      IllegalArgumentException e =
          assertThrows(
              IllegalArgumentException.class,
              () -> Server.start(served.loupe(), same, why -> {}).close());
      String message = String.valueOf(e.getMessage());
      assertTrue(message.contains("port " + served.server().port()), message);
      served.get("/healthz").has(200);
    }
  }

  @Test
  void answersWhatIsHardlyHttp() throws IOException {
    try (Served served = Served.start(options("127.0.0.1", ""))) {
      HttpResponse<String> fine = served.send(served.to("/healthz"));
      assertEquals("nosniff", fine.headers().firstValue("x-content-type-options").orElse(""));
      assertTrue(said(served, "what is this?\n\n").startsWith("HTTP/1.1 400"));
      assertTrue(
          said(served, "GET /" + "x".repeat(5000) + " HTTP/1.1\n\n").startsWith("HTTP/1.1 414"));
      assertTrue(
          said(served, "GET / HTTP/1.1\nX: " + "x".repeat(20_000) + "\n\n")
              .startsWith("HTTP/1.1 431"));
      assertTrue(
          said(served, "GET /healthz HTTP/1.0\nHost: localhost\n\n").contains("connection: close"));
    }
  }
}
