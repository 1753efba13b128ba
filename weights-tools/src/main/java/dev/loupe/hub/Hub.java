package dev.loupe.hub;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import dev.loupe.weights.io.CheckpointException;
import dev.loupe.weights.io.JsonValue;
import dev.loupe.weights.io.StrictJson;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.lang.foreign.MemorySegment;
import java.net.ConnectException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.net.http.HttpTimeoutException;
import java.nio.channels.UnresolvedAddressException;
import java.time.Duration;
import java.util.HashSet;
import java.util.OptionalLong;
import java.util.Set;
import javax.net.ssl.SSLException;
import org.jspecify.annotations.Nullable;

/**
 * A server of models with the HTTP layout of the Hugging Face hub:
 *
 * <pre>
 * GET  BASE/api/models/NAME/revision/REVISION   JSON: "sha", the commit, and "siblings", the files
 * HEAD BASE/NAME/resolve/COMMIT/FILE            X-Linked-Etag and -Size, or ETag and Content-Length
 * GET  BASE/NAME/resolve/COMMIT/FILE            the bytes, usually by way of a redirect
 * </pre>
 *
 * <p>Redirects are followed here and not by the HTTP client: the token must not leave the hub's own
 * host, and what the hub says of a file stands in the answer that redirects.
 *
 * <p>Source: huggingface_hub, {@code file_download.py} and {@code hf_api.py}; RFC 9110.
 */
public final class Hub implements AutoCloseable {
  private static final int MOST_REDIRECTS = 10;
  private static final int LONGEST_JSON = 16 << 20;
  private static final String USER_AGENT = "loupe";

  private final HubSettings settings;
  private final HttpClient client;
  private volatile boolean reached; // once: before that, another try would be a wait for nothing

  /**
   * @param settings which hub, by which proxy, with which token
   */
  public Hub(HubSettings settings) {
    if (settings.proxies().authorization(settings.base()).isPresent()) {
      // Java keeps passwords from proxies that lead to secure servers, unless told otherwise
      System.setProperty("jdk.http.auth.tunneling.disabledSchemes", "");
    }
    this.settings = settings;
    client =
        HttpClient.newBuilder()
            .version(HttpClient.Version.HTTP_1_1) // a connection for each file
            .followRedirects(HttpClient.Redirect.NEVER)
            .connectTimeout(settings.patience().silence())
            .proxy(settings.proxies())
            .build();
  }

  /**
   * What a revision holds.
   *
   * @param commit the revision's own name, which won't move
   * @param files names with their folders
   */
  record Listing(String commit, Set<String> files) {}

  HubSettings.Patience patience() {
    return settings.patience();
  }

  /** As messages call it. */
  String host() {
    return settings.base().getAuthority();
  }

  /**
   * Lists a revision.
   *
   * @throws CheckpointException if there is no such model or revision
   */
  Listing list(ModelName name) throws IOException, InterruptedException {
    String path =
        "/api/models/%s/revision/%s"
            .formatted(name.repository(), name.revision().replace("/", "%2F"));
    byte[] json = Retries.of(patience(), () -> small(path, name));
    try {
      return listing(json);
    } catch (CheckpointException | IllegalArgumentException e) {
      // a page of a network that wants a login, a server of another kind
      throw new IOException(
          "%s answers for %s, but not as a hub does (%s): check its address"
              .formatted(host(), name, e.getMessage()),
          e);
    }
  }

  /**
   * What the hub's JSON lists.
   *
   * @throws IllegalArgumentException if it is no list of files
   */
  static Listing listing(byte[] json) throws CheckpointException {
    String what = "its answer";
    JsonElement answer =
        StrictJson.parse(
            what,
            MemorySegment.ofArray(json),
            in -> StrictJson.tree(in, what, StrictJson.MOST_VALUES));
    JsonObject info = JsonValue.object(answer, what);
    String commit = JsonValue.text(info.get("sha"), "sha");
    if (!commit.matches("[0-9a-f]{7,64}")) {
      throw new IllegalArgumentException("sha is \"%s\"".formatted(StrictJson.shown(commit)));
    }
    Set<String> files = new HashSet<>();
    for (JsonElement sibling : JsonValue.array(info.get("siblings"), "siblings")) {
      JsonObject file = JsonValue.object(sibling, "one of siblings");
      files.add(JsonValue.text(file.get("rfilename"), "rfilename"));
    }
    return new Listing(commit, files);
  }

  private byte[] small(String path, ModelName name) throws IOException, InterruptedException {
    try (Answer answer = send("GET", path, 0, null, name.toString());
        ByteArrayOutputStream bytes = new ByteArrayOutputStream()) {
      byte[] chunk = new byte[1 << 16];
      for (int n = answer.read(chunk); n >= 0; n = answer.read(chunk)) {
        bytes.write(chunk, 0, n);
        if (bytes.size() > LONGEST_JSON) {
          throw new IOException(
              "%s lists more than %d bytes of files for %s".formatted(host(), LONGEST_JSON, name));
        }
      }
      return bytes.toByteArray();
    }
  }

  /**
   * What the hub announces of a file.
   *
   * @throws IOException if it gives no size, or no hash by which the content could be checked
   */
  RemoteFile announced(ModelName name, String commit, String file)
      throws IOException, InterruptedException {
    return Retries.of(
        patience(),
        () -> {
          try (Answer answer = send("HEAD", path(name, commit, file), 0, null, file)) {
            OptionalLong size = answer.announcedSize();
            String hash = answer.hash();
            if (size.isEmpty() || hash == null) {
              throw new IOException(
                  "%s gives no %s of %s, so what comes could not be checked"
                      .formatted(host(), hash == null ? "hash" : "size", file));
            }
            return new RemoteFile(file, size.getAsLong(), hash);
          }
        });
  }

  static String path(ModelName name, String commit, String file) {
    return "/%s/resolve/%s/%s".formatted(name.repository(), commit, file);
  }

  /**
   * Asks once, and follows where the answer leads.
   *
   * @param from the first byte wanted
   * @param etag of the answer that the bytes before came with; null if that isn't known
   * @param what is asked for, as messages call it
   * @return an answer of status 200, 206 or 416; of a HEAD also a redirect that says all
   * @throws TransientException if it may go well another time
   */
  Answer send(String method, String path, long from, @Nullable String etag, String what)
      throws IOException, InterruptedException {
    URI at = URI.create(settings.base() + path);
    Announcement announcement = new Announcement();
    for (int hop = 0; hop <= MOST_REDIRECTS; hop++) {
      Answer answer =
          new Answer(request(method, at, from, etag), announcement, patience().silence(), what);
      boolean returned = false;
      try {
        announcement.hear(answer.headers(), isHub(at));
        int status = answer.status();
        boolean said = method.equals("HEAD") && announcement.isWhole();
        if (status == 200 || status == 206 || status == 416 || (isRedirect(status) && said)) {
          returned = true;
          return answer;
        }
        if (!isRedirect(status)) {
          throw refusal(answer, what);
        }
        at = next(at, answer.headers().firstValue("Location").orElse(""), what);
      } finally {
        if (!returned) {
          answer.close();
        }
      }
    }
    throw new IOException(
        "%s leads in circles for %s: more than %d redirects"
            .formatted(host(), what, MOST_REDIRECTS));
  }

  private static boolean isRedirect(int status) {
    return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
  }

  /** Where a redirect leads: to the web, and not from a secure server to another kind. */
  static URI next(URI at, String location, String what) throws IOException {
    try {
      URI next = at.resolve(location);
      boolean safe =
          "https".equals(next.getScheme())
              || ("http".equals(next.getScheme()) && "http".equals(at.getScheme()));
      if (!location.isEmpty() && next.getHost() != null && safe) {
        return next;
      }
    } catch (IllegalArgumentException e) {
      // said below
    }
    throw new IOException(
        "%s redirects %s to where it can't be fetched from".formatted(at.getAuthority(), what));
  }

  private boolean isHub(URI uri) {
    URI base = settings.base();
    return uri.getScheme().equals(base.getScheme())
        && uri.getAuthority().equalsIgnoreCase(base.getAuthority());
  }

  private HttpResponse<InputStream> request(String method, URI at, long from, @Nullable String etag)
      throws IOException, InterruptedException {
    HttpRequest.Builder request =
        HttpRequest.newBuilder(at)
            .method(method, HttpRequest.BodyPublishers.noBody())
            .timeout(patience().silence())
            .header("Accept-Encoding", "identity") // else lengths are those of packed bytes
            .header("User-Agent", USER_AGENT);
    if (from > 0) {
      request.header("Range", "bytes=%d-".formatted(from));
      if (etag != null) {
        request.header("If-Range", etag);
      }
    }
    settings
        .proxies()
        .authorization(at)
        .ifPresent(login -> request.header("Proxy-Authorization", login));
    if (isHub(at)) {
      settings.token().ifPresent(token -> request.header("Authorization", "Bearer " + token));
    }
    try {
      HttpResponse<InputStream> response =
          client.send(request.build(), HttpResponse.BodyHandlers.ofInputStream());
      reached = true;
      return response;
    } catch (IOException e) {
      String message = unreachable(at.getAuthority(), e);
      throw reached ? new TransientException(message, e) : new IOException(message, e);
    }
  }

  /** Java's own messages are empty here more often than not. */
  private String unreachable(String host, IOException e) {
    Throwable root = root(e);
    return switch (e) {
      case HttpTimeoutException _ ->
          "%s says nothing for %d s".formatted(host, patience().silence().toSeconds());
      case ConnectException _ when root instanceof UnresolvedAddressException ->
          "there is no host %s, or no network".formatted(host);
      case ConnectException _ -> host + " takes no connection";
      case SSLException _ -> "no secure connection to %s: %s".formatted(host, line(root));
      default -> "the connection to %s broke: %s".formatted(host, line(root));
    };
  }

  private static Throwable root(Throwable e) {
    Throwable root = e;
    while (root.getCause() != null) {
      root = root.getCause();
    }
    return root;
  }

  private static String line(Throwable e) {
    String message = e.getMessage() == null ? e.getClass().getSimpleName() : e.getMessage();
    return message.replaceAll("\\p{Cntrl}+", " ").strip();
  }

  /** What an answer that isn't the thing itself means. */
  private IOException refusal(Answer answer, String what) {
    int status = answer.status();
    String host = answer.host();
    String code = answer.headers().firstValue("X-Error-Code").orElse("");
    boolean token = settings.token().isPresent();
    if (status == 429 || status == 408 || status >= 500) {
      return new TransientException(
          status == 429
              ? host + " has been asked too often (429): wait, or set HF_TOKEN"
              : "%s fails for %s (status %d)".formatted(host, what, status),
          retryAfter(answer));
    }
    return switch (status) {
      // the hub answers so for names that don't exist, too
      case 401 ->
          new IOException(
              token
                  ? "%s does not let this HF_TOKEN have %s, or there is no such model (401)"
                      .formatted(host, what)
                  : "%s has no public model with %s (401): check the name, or set HF_TOKEN"
                      .formatted(host, what));
      case 403 ->
          new IOException(
              "%s does not give out %s (403): accept the model's terms there, and set HF_TOKEN"
                  .formatted(host, what));
      case 404 ->
          new CheckpointException(
              code.equals("RevisionNotFound")
                  ? "%s has no such revision of the model: %s (404)".formatted(host, what)
                  : "%s has no %s (404): check the name".formatted(host, what));
      default -> new IOException("%s refuses %s (status %d)".formatted(host, what, status));
    };
  }

  private static Duration retryAfter(Answer answer) {
    String value = answer.headers().firstValue("Retry-After").orElse("");
    return value.matches("[0-9]{1,6}") ? Duration.ofSeconds(Long.parseLong(value)) : Duration.ZERO;
  }

  /** Ends what is under way. */
  @Override
  public void close() {
    client.shutdownNow();
  }
}
