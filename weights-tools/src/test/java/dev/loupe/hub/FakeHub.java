package dev.loupe.hub;

import static java.nio.charset.StandardCharsets.UTF_8;

import com.sun.net.httpserver.Headers;
import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.URI;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Queue;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedDeque;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/**
 * A hub and its CDN, two servers on this machine, with a model that a test puts together and faults
 * that it orders. Large files (over 100 bytes) are LFS: the hub redirects to the CDN for them.
 */
public final class FakeHub implements AutoCloseable {
  static final String COMMIT = "0123456789abcdef0123456789abcdef01234567";
  public static final String NAME = "somebody/tiny-gpt2";

  /** Answers in place of the server; false leaves the answer to it. */
  interface Fault {
    boolean answer(HttpExchange exchange) throws IOException;
  }

  private final HttpServer hub;
  private final HttpServer cdn;
  private final ExecutorService threads = Executors.newVirtualThreadPerTaskExecutor();
  private final Map<String, byte[]> files = new TreeMap<>();
  private final Map<String, Queue<Fault>> faults = new ConcurrentHashMap<>();
  private final Map<String, String> hashes = new ConcurrentHashMap<>();
  private final Map<String, Long> sizes = new ConcurrentHashMap<>();
  private final Queue<String> log = new ConcurrentLinkedQueue<>();
  volatile String cdnEtag = "\"v1\"";
  volatile boolean ranges = true;
  volatile Duration silence = Duration.ofSeconds(10); // a busy machine is no silent server

  public FakeHub() throws IOException {
    InetSocketAddress any = new InetSocketAddress(InetAddress.getLoopbackAddress(), 0);
    hub = HttpServer.create(any, 0);
    cdn = HttpServer.create(any, 0);
    hub.createContext("/", exchange -> handle("", exchange));
    cdn.createContext("/", exchange -> handle("cdn", exchange));
    for (HttpServer server : List.of(hub, cdn)) {
      server.setExecutor(threads);
      server.start();
    }
  }

  public String address() {
    return "http://localhost:" + hub.getAddress().getPort();
  }

  String cdnAddress() {
    return "http://localhost:" + cdn.getAddress().getPort();
  }

  /** Tries again at once, so that tests are fast. */
  HubSettings settings() {
    return new HubSettings(
        URI.create(address()),
        Optional.of("hf_secret"),
        new EnvironmentProxies(variable -> null),
        new HubSettings.Patience(silence, 3, Duration.ofMillis(5)));
  }

  public FakeHub put(String name, byte[] content) {
    files.put(name, content);
    return this;
  }

  FakeHub put(String name, String content) {
    return put(name, content.getBytes(UTF_8));
  }

  /** A model with weights of a few MB. */
  static FakeHub withModel() throws IOException {
    return new FakeHub()
        .put("config.json", "{\"n_layer\": 2}")
        .put("tokenizer.json", "{\"model\": {}}")
        .put("README.md", "not needed")
        .put("onnx/model.safetensors", "not needed")
        .put("pytorch_model.bin", "not needed")
        .put("model.safetensors", weights());
  }

  /** No two stretches of it are alike. */
  static byte[] weights() {
    byte[] weights = new byte[3_000_000];
    new java.util.Random(5).nextBytes(weights);
    return weights;
  }

  void remove(String name) {
    files.remove(name);
  }

  /** Lies about a file. */
  void announce(String name, String hash, long size) {
    hashes.put(name, hash);
    sizes.put(name, size);
  }

  /** The next request for this method and path (as in the log) is answered by {@code fault}. */
  void fault(String request, Fault fault) {
    faults.computeIfAbsent(request, key -> new ConcurrentLinkedDeque<>()).add(fault);
  }

  /** Likewise, with every later one. */
  void faults(String request, Fault fault) {
    for (int i = 0; i < 50; i++) {
      fault(request, fault);
    }
  }

  static Fault status(int status, String... headers) {
    return exchange -> {
      for (int i = 0; i < headers.length; i += 2) {
        exchange.getResponseHeaders().set(headers[i], headers[i + 1]);
      }
      exchange.sendResponseHeaders(status, -1);
      return true;
    };
  }

  /**
   * All requests: {@code "GET /path"} of the hub's, {@code "GET cdn/path"}, with {@code " [range]
   * [if-range] [authorized]"} after it where they were sent.
   */
  List<String> log() {
    return List.copyOf(log);
  }

  void clearLog() {
    log.clear();
  }

  static String get(String file) {
    return "GET /%s/resolve/%s/%s".formatted(NAME, COMMIT, file);
  }

  static String head(String file) {
    return "HEAD /%s/resolve/%s/%s".formatted(NAME, COMMIT, file);
  }

  static String cdn(String file) {
    return "GET cdn/blobs/" + file;
  }

  static final String LIST = "GET /api/models/" + NAME + "/revision/main";

  private void handle(String server, HttpExchange exchange) throws IOException {
    try (exchange) {
      String path = exchange.getRequestURI().getRawPath();
      String request = exchange.getRequestMethod() + " " + server + path;
      Headers sent = exchange.getRequestHeaders();
      String line = request;
      for (String header : List.of("Range", "If-Range", "Authorization")) {
        line += sent.containsKey(header) ? " " + sent.getFirst(header) : "";
      }
      log.add(line);
      Queue<Fault> ordered = faults.getOrDefault(request, new ArrayDeque<>());
      Fault fault = ordered.poll();
      if (fault == null || !fault.answer(exchange)) {
        serve(server, path, exchange);
      }
    }
  }

  private void serve(String server, String path, HttpExchange exchange) throws IOException {
    String name = path.substring(path.lastIndexOf('/') + 1);
    if (server.isEmpty() && path.startsWith("/api/models/" + NAME + "/revision/")) {
      send(exchange, 200, list());
    } else if (!files.containsKey(name) || !path.contains(server.isEmpty() ? NAME : "/blobs/")) {
      status(404).answer(exchange);
    } else if (server.isEmpty()) {
      resolve(exchange, name);
    } else {
      exchange.getResponseHeaders().set("ETag", cdnEtag);
      content(exchange, bytes(name));
    }
  }

  byte[] bytes(String name) {
    byte[] content = files.get(name);
    if (content == null) {
      throw new IllegalArgumentException(name);
    }
    return content;
  }

  private byte[] list() {
    StringBuilder json = new StringBuilder("{\"sha\": \"" + COMMIT + "\", \"siblings\": [");
    String comma = "";
    for (String name : files.keySet()) {
      json.append(comma).append("{\"rfilename\": \"").append(name).append("\"}");
      comma = ", ";
    }
    return json.append("]}").toString().getBytes(UTF_8);
  }

  private void resolve(HttpExchange exchange, String name) throws IOException {
    Headers headers = exchange.getResponseHeaders();
    byte[] content = bytes(name);
    headers.set("X-Repo-Commit", COMMIT);
    if (content.length > 100) {
      headers.set("X-Linked-Etag", '"' + hashes.getOrDefault(name, sha256(content)) + '"');
      headers.set("X-Linked-Size", sizes.getOrDefault(name, (long) content.length).toString());
      headers.set("ETag", '"' + "f".repeat(40) + '"'); // that of the pointer
      headers.set("Location", cdnAddress() + "/blobs/" + name);
      exchange.sendResponseHeaders(302, -1);
      return;
    }
    headers.set("ETag", '"' + hashes.getOrDefault(name, gitHash(content)) + '"');
    content(exchange, content);
  }

  private void content(HttpExchange exchange, byte[] content) throws IOException {
    String range = exchange.getRequestHeaders().getFirst("Range");
    String ifRange = exchange.getRequestHeaders().getFirst("If-Range");
    String etag = exchange.getResponseHeaders().getFirst("ETag");
    if (range == null || !ranges || (ifRange != null && !ifRange.equals(etag))) {
      send(exchange, 200, content);
      return;
    }
    int from = Integer.parseInt(range.replaceAll("bytes=([0-9]+)-", "$1"));
    exchange
        .getResponseHeaders()
        .set("Content-Range", "bytes %d-%d/%d".formatted(from, content.length - 1, content.length));
    send(exchange, 206, Arrays.copyOfRange(content, from, content.length));
  }

  static void send(HttpExchange exchange, int status, byte[] content) throws IOException {
    boolean head = exchange.getRequestMethod().equals("HEAD");
    if (head) {
      exchange.getResponseHeaders().set("Content-Length", Integer.toString(content.length));
    }
    exchange.sendResponseHeaders(status, head ? -1 : content.length == 0 ? -1 : content.length);
    if (!head) {
      try (OutputStream out = exchange.getResponseBody()) {
        out.write(content);
      }
    }
  }

  /** The first bytes of a file under the length of all; then the line breaks. */
  Fault cut(String name, int after) {
    return exchange -> {
      byte[] content = bytes(name);
      exchange.getResponseHeaders().set("ETag", cdnEtag);
      exchange.sendResponseHeaders(200, content.length);
      exchange.getResponseBody().write(content, 0, after);
      exchange.getResponseBody().flush();
      return true; // closing the exchange then breaks the connection
    };
  }

  /** The first bytes of a file, then silence. */
  Fault stall(String name, int after, Duration silence) {
    return exchange -> {
      byte[] content = bytes(name);
      exchange.sendResponseHeaders(200, content.length);
      exchange.getResponseBody().write(content, 0, after);
      exchange.getResponseBody().flush();
      pause(silence);
      return true;
    };
  }

  static void pause(Duration silence) {
    try {
      Thread.sleep(silence);
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    }
  }

  static String sha256(byte[] content) {
    return hash("SHA-256", content);
  }

  static String gitHash(byte[] content) {
    ByteArrayOutputStream blob = new ByteArrayOutputStream();
    blob.writeBytes(("blob " + content.length + "\0").getBytes(UTF_8));
    blob.writeBytes(content);
    return hash("SHA-1", blob.toByteArray());
  }

  private static String hash(String algorithm, byte[] bytes) {
    try {
      return HexFormat.of().formatHex(MessageDigest.getInstance(algorithm).digest(bytes));
    } catch (NoSuchAlgorithmException e) {
      throw new AssertionError(e);
    }
  }

  @Override
  public void close() {
    threads.shutdownNow();
    hub.stop(0);
    cdn.stop(0);
  }
}
