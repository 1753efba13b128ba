package dev.loupe.hub;

import static java.nio.charset.StandardCharsets.ISO_8859_1;
import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.weights.io.Progress;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.Proxy;
import java.net.ServerSocket;
import java.net.Socket;
import java.net.URI;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Base64;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** What the environment says of the hub, the token and the way there. */
@Timeout(200)
class HubSettingsTest {
  private static final HubSettings.Patience ONCE =
      new HubSettings.Patience(Duration.ofSeconds(10), 1, Duration.ZERO);

  @TempDir Path home;
  private final Map<String, String> environment = new HashMap<>();

  private HubSettings settings() throws IOException {
    return HubSettings.of(null, environment::get, home.toString());
  }

  private String proxy(String target) throws IOException {
    Proxy proxy = settings().proxies().select(URI.create(target)).getFirst();
    if (proxy.type() == Proxy.Type.DIRECT) {
      return "direct";
    }
    InetSocketAddress address = (InetSocketAddress) proxy.address();
    return address.getHostString() + ":" + address.getPort();
  }

  @Test
  void theAddressIsTheOptionsOrTheEnvironments() throws IOException {
    assertEquals("https", settings().base().getScheme());
    environment.put("HF_ENDPOINT", "http://localhost:8080/mirror//");
    assertEquals(URI.create("http://localhost:8080/mirror"), settings().base());
    assertEquals(
        URI.create("https://hub.example.org"),
        HubSettings.of("https://hub.example.org/", environment::get, home.toString()).base());
  }

  @ParameterizedTest
  @ValueSource(
      strings = {
        "",
        "hub",
        "ftp://hub",
        "http://",
        "http:///x",
        "file:///etc",
        "http://a b",
        "http://h:x",
        "http://user:secret@hub",
        "http://hub?x",
        "http://hub#x"
      })
  void whatIsNoAddressIsRefused(String address) {
    assertThrows(
        IllegalArgumentException.class,
        () -> HubSettings.of(address, environment::get, home.toString()));
  }

  @Test
  void theTokenIsTheVariablesOrTheFiles() throws IOException {
    assertEquals(Optional.empty(), settings().token());
    Path file = Files.createDirectories(home.resolve(".cache/huggingface")).resolve("token");
    Files.writeString(file, "of the login\n".replace(' ', '_'));
    assertEquals(Optional.of("of_the_login"), settings().token());
    environment.put("XDG_CACHE_HOME", home.resolve("xdg").toString());
    assertEquals(Optional.empty(), settings().token());
    environment.put("HF_HOME", "~/.cache/huggingface");
    assertEquals(Optional.of("of_the_login"), settings().token());
    environment.put("HF_TOKEN_PATH", Files.writeString(home.resolve("t"), "named").toString());
    assertEquals(Optional.of("named"), settings().token());
    environment.put("HF_TOKEN", " hf_variable ");
    assertEquals(Optional.of("hf_variable"), settings().token());
    assertFalse(settings().toString().contains("variable"));
  }

  @ParameterizedTest
  @ValueSource(strings = {"a b", "a\nX-Evil: 1", "a\u0000", "\u00e4"})
  void whatIsNoTokenIsRefusedAndNotShown(String token) {
    environment.put("HF_TOKEN", token);
    IllegalArgumentException e = assertThrows(IllegalArgumentException.class, this::settings);
    assertEquals("HF_TOKEN holds no token: it has other characters too", e.getMessage());
  }

  @ParameterizedTest
  @CsvSource({
    "https_proxy, http://p:3128, https://hub.org/x, p:3128",
    "https_proxy, p:3128, https://hub.org/x, p:3128",
    "https_proxy, http://u:s@p, https://hub.org/x, p:80",
    "HTTPS_PROXY, p:1, https://hub.org/x, p:1",
    "https_proxy, p:1, http://hub.org/x, direct",
    "http_proxy, p:1, http://hub.org/x, p:1",
    "http_proxy, p:1, https://hub.org/x, direct",
    "HTTP_PROXY, p:1, http://hub.org/x, direct",
    "all_proxy, p:1, http://hub.org/x, p:1",
    "ALL_PROXY, p:1, https://hub.org/x, p:1"
  })
  void proxiesAreThoseOfTheEnvironment(String variable, String value, String target, String proxy)
      throws IOException {
    environment.put(variable, value);
    assertEquals(proxy, proxy(target));
  }

  @ParameterizedTest
  @CsvSource({
    "hub.org, direct",
    "org, direct",
    ".hub.org, direct",
    "*.hub.org, direct",
    "HUB.ORG, direct",
    "'a.b, hub.org', direct",
    "*, direct",
    "hub.org:8443, direct",
    "hub.org:1, p:1",
    "ub.org, p:1",
    "x.hub.org, p:1",
    "'', p:1",
    "',', p:1"
  })
  void someHostsNeedNone(String without, String proxy) throws IOException {
    environment.put("https_proxy", "p:1");
    environment.put("no_proxy", without);
    assertEquals(proxy, proxy("https://hub.org:8443/x"));
  }

  @ParameterizedTest
  @ValueSource(strings = {"http://localhost:8080", "http://127.0.0.1", "http://[::1]:80"})
  void thisMachineNeedsNone(String target) throws IOException {
    environment.put("http_proxy", "p:1");
    assertEquals("direct", proxy(target));
  }

  @Test
  void javasOwnPropertiesWin() throws IOException {
    environment.put("https_proxy", "p:1");
    System.setProperty("https.proxyHost", "q");
    System.setProperty("https.proxyPort", "2");
    try {
      assertEquals("q:2", proxy("https://hub.org"));
    } finally {
      System.clearProperty("https.proxyHost");
      System.clearProperty("https.proxyPort");
    }
    assertEquals("p:1", proxy("https://hub.org"));
  }

  @ParameterizedTest
  @ValueSource(strings = {"socks5://user:secret@p:1", "https://p:1", "p:secret", "http://"})
  void whatIsNoProxyIsRefusedWithoutItsPassword(String value) {
    environment.put("https_proxy", value);
    IllegalArgumentException e = assertThrows(IllegalArgumentException.class, this::settings);
    String message = String.valueOf(e.getMessage());
    assertTrue(message.startsWith("https_proxy names no proxy"), message);
    assertFalse(message.contains("secret"), message);
  }

  @Test
  void aPullGoesThroughTheProxyWithItsPassword() throws IOException {
    try (FakeHub server = FakeHub.withModel()) {
      environment.put("http_proxy", server.address().replace("//", "//me:p%40ss+word@"));
      String[] login = new String[1];
      server.fault(
          FakeHub.LIST,
          exchange -> {
            login[0] = exchange.getRequestHeaders().getFirst("Proxy-Authorization");
            return false;
          });
      HubSettings settings =
          new HubSettings(
              URI.create("http://hub.invalid"), Optional.empty(), settings().proxies(), ONCE);
      try (Hub hub = new Hub(settings)) {
        Pull.run(
            hub, ModelName.of(FakeHub.NAME), Optional.empty(), home.resolve("m"), Progress.NONE);
      }
      assertEquals(basic("me:p@ss+word"), login[0]);
    }
  }

  private static String basic(String login) {
    return "Basic " + Base64.getEncoder().encodeToString(login.getBytes(UTF_8));
  }

  /** To a secure hub a proxy is asked for a tunnel; the token isn't the proxy's to see. */
  @Test
  void aTunnelIsAskedForWithThePasswordAndWithoutTheToken() throws Exception {
    try (ServerSocket proxy = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
      environment.put("https_proxy", "http://me:pass@localhost:" + proxy.getLocalPort());
      String[] asked = {""};
      Thread serving = Thread.ofVirtual().start(() -> asked[0] = refuseOne(proxy));
      HubSettings settings =
          new HubSettings(
              URI.create("https://hub.invalid"),
              Optional.of("hf_secret"),
              settings().proxies(),
              ONCE);
      try (Hub hub = new Hub(settings)) {
        IOException e =
            assertThrows(
                IOException.class,
                () ->
                    Pull.run(
                        hub,
                        ModelName.of("a/b"),
                        Optional.empty(),
                        home.resolve("m"),
                        Progress.NONE));
        assertFalse(String.valueOf(e.getMessage()).contains("pass"), e.getMessage());
      }
      serving.join();
      assertTrue(asked[0].startsWith("CONNECT hub.invalid:443 "), asked[0]);
      assertTrue(asked[0].contains("Proxy-Authorization: " + basic("me:pass")), asked[0]);
      assertFalse(asked[0].contains("hf_secret"), asked[0]);
    }
  }

  private static String refuseOne(ServerSocket server) {
    try (Socket socket = server.accept()) {
      ByteArrayOutputStream head = new ByteArrayOutputStream();
      while (!head.toString(ISO_8859_1).endsWith("\r\n\r\n")) {
        head.write(socket.getInputStream().read());
      }
      socket
          .getOutputStream()
          .write("HTTP/1.1 502 No\r\nContent-Length: 0\r\n\r\n".getBytes(UTF_8));
      return head.toString(ISO_8859_1);
    } catch (IOException e) {
      return e.toString();
    }
  }
}
