package dev.loupe.serve;

import static java.nio.charset.StandardCharsets.UTF_8;

import dev.loupe.serve.http.ApiException;
import dev.loupe.serve.http.Exchange;
import java.net.URI;
import java.security.MessageDigest;
import java.util.List;
import java.util.Locale;
import java.util.Optional;
import java.util.Set;

/**
 * Who is served. A page in a browser on this machine can send requests to any address, so Origin is
 * checked; and its name may be made to resolve to 127.0.0.1 (DNS rebinding), so Host is checked
 * where only this machine is meant. No answer allows another origin to read it (CORS).
 */
final class Access {
  private static final Set<String> LOOPBACK = Set.of("localhost", "127.0.0.1", "[::1]");

  private final boolean loopback;
  private final String host;
  private final Optional<byte[]> apiKey;

  /**
   * @param loopback whether the server is reached from this machine alone
   */
  Access(ServerOptions options, boolean loopback) {
    this.loopback = loopback;
    this.host = options.host().toLowerCase(Locale.ROOT);
    this.apiKey = options.apiKey().map(key -> key.getBytes(UTF_8));
  }

  /**
   * Lets a request pass.
   *
   * @param open whether it needs no key
   * @throws ApiException if it may not
   */
  void check(Exchange exchange, boolean open) {
    List<String> hosts = exchange.request().headers("host");
    if (hosts.size() != 1) {
      throw ApiException.invalid(
          400, null, "the request has %d Host headers, not 1".formatted(hosts.size()));
    }
    String authority = hosts.getFirst().toLowerCase(Locale.ROOT);
    if (loopback && !isOurs(nameOf(authority))) {
      throw ApiException.invalid(
          421,
          "host_not_allowed",
          "this server answers to localhost, not to the host of this request");
    }
    for (String origin : exchange.request().headers("origin")) {
      if (!isAllowed(origin, authority)) {
        throw ApiException.invalid(
            403, "origin_not_allowed", "pages of other origins may not use this server");
      }
    }
    if (!open && apiKey.isPresent() && !showsKey(exchange, apiKey.get())) {
      throw ApiException.invalid(
          401, "invalid_api_key", "the API key is missing or wrong: Authorization: Bearer KEY");
    }
  }

  private static boolean showsKey(Exchange exchange, byte[] key) {
    List<String> shown = exchange.request().headers("authorization");
    String prefix = "Bearer ";
    return shown.size() == 1
        && shown.getFirst().regionMatches(true, 0, prefix, 0, prefix.length())
        && MessageDigest.isEqual( // takes as long however much is right
            key, shown.getFirst().substring(prefix.length()).strip().getBytes(UTF_8));
  }

  private boolean isOurs(String name) {
    return LOOPBACK.contains(name) || name.equals(host) || name.equals("[" + host + "]");
  }

  private static boolean isAllowed(String origin, String authority) {
    try {
      URI uri = new URI(origin.toLowerCase(Locale.ROOT));
      String from = uri.getRawAuthority(); // null of "null", which sandboxed pages send
      boolean web = "http".equals(uri.getScheme()) || "https".equals(uri.getScheme());
      return web && from != null && (from.equals(authority) || LOOPBACK.contains(nameOf(from)));
    } catch (java.net.URISyntaxException e) {
      return false;
    }
  }

  /** An authority without its port. */
  private static String nameOf(String authority) {
    return authority.replaceFirst(":[0-9]{1,5}$", "");
  }
}
