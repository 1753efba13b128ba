package dev.loupe.hub;

import dev.loupe.weights.io.InputFile;
import java.io.IOException;
import java.net.URI;
import java.net.URISyntaxException;
import java.nio.file.Files;
import java.nio.file.InvalidPathException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Locale;
import java.util.Optional;
import java.util.function.UnaryOperator;
import org.jspecify.annotations.Nullable;

/**
 * Which hub, who asks, by what way, and how patiently.
 *
 * @param base the hub's address without a slash at its end
 * @param token the secret that says who asks; goes to the hub's own host and to no other
 * @param proxies what stands between here and there
 */
public record HubSettings(
    URI base, Optional<String> token, EnvironmentProxies proxies, Patience patience) {
  private static final String DEFAULT_BASE = "https://huggingface.co";
  private static final int LONGEST_TOKEN = 4096;

  /**
   * How long a slow or broken hub is borne with.
   *
   * @param silence how long the other side may say nothing
   * @param tries how often in all the same thing is asked for
   * @param pause between the first two tries; each later one is twice as long
   */
  public record Patience(Duration silence, int tries, Duration pause) {
    static final Patience NORMAL = new Patience(Duration.ofSeconds(30), 5, Duration.ofSeconds(1));
  }

  /**
   * What the environment says: HF_ENDPOINT, HF_TOKEN or the file that Hugging Face's login leaves,
   * https_proxy and its kin.
   *
   * @param address the hub's address, null for the environment's or else the Hugging Face hub's
   * @param env gives the value of an environment variable, or null
   * @param home the user's home
   * @throws IllegalArgumentException if an address or the token can't be one
   * @throws IOException if the file with the token can't be read
   */
  public static HubSettings of(
      @Nullable String address, UnaryOperator<@Nullable String> env, String home)
      throws IOException {
    String chosen = address == null ? set(env, "HF_ENDPOINT") : address;
    return new HubSettings(
        base(chosen == null ? DEFAULT_BASE : chosen),
        token(env, home),
        new EnvironmentProxies(env),
        Patience.NORMAL);
  }

  static URI base(String address) {
    try {
      URI base = new URI(address.replaceFirst("/+$", "")).parseServerAuthority();
      boolean web =
          "http".equals(lower(base.getScheme())) || "https".equals(lower(base.getScheme()));
      if (web
          && base.getHost() != null
          && base.getUserInfo() == null
          && base.getQuery() == null
          && base.getFragment() == null) {
        return base;
      }
    } catch (URISyntaxException e) {
      // said below
    }
    throw new IllegalArgumentException(
        "\"%s\" is no hub's address; they look like https://hub.example.org".formatted(address));
  }

  private static String lower(@Nullable String text) {
    return text == null ? "" : text.toLowerCase(Locale.ROOT);
  }

  private static Optional<String> token(UnaryOperator<@Nullable String> env, String home)
      throws IOException {
    for (String variable : new String[] {"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"}) {
      String token = set(env, variable);
      if (token != null) {
        return Optional.of(checked(token.strip(), variable));
      }
    }
    String named = set(env, "HF_TOKEN_PATH");
    Path folder = home(env, home);
    Path file = named != null ? path(named, home) : folder == null ? null : folder.resolve("token");
    if (file == null || !Files.isRegularFile(file) || Files.size(file) == 0) {
      return Optional.empty();
    }
    String token = InputFile.read(file, LONGEST_TOKEN, "a token").text().strip();
    return token.isEmpty() ? Optional.empty() : Optional.of(checked(token, file.toString()));
  }

  /** Without the token in the message: errors end up in logs. */
  private static String checked(String token, String where) {
    if (!token.matches("[!-~]{1," + LONGEST_TOKEN + "}")) {
      throw new IllegalArgumentException(where + " holds no token: it has other characters too");
    }
    return token;
  }

  /** HF_HOME or what stands for it; null if the user has no home. */
  static @Nullable Path home(UnaryOperator<@Nullable String> env, String home) {
    String chosen = set(env, "HF_HOME");
    if (chosen != null) {
      return path(chosen, home);
    }
    String cache = set(env, "XDG_CACHE_HOME");
    Path folder = cache == null ? path(home + "/.cache", home) : path(cache, home);
    return folder == null ? null : folder.resolve("huggingface");
  }

  /** A path of the environment, where ~ is the home; null if it is none, or not absolute. */
  static @Nullable Path path(String text, String home) {
    try {
      Path path = Path.of(text.startsWith("~/") ? home + text.substring(1) : text);
      return path.isAbsolute() ? path : null;
    } catch (InvalidPathException e) {
      return null;
    }
  }

  static @Nullable String set(UnaryOperator<@Nullable String> env, String variable) {
    String value = env.apply(variable);
    return value == null || value.isBlank() ? null : value;
  }

  /** Without the token. */
  @Override
  public String toString() {
    return "HubSettings[%s, %s]".formatted(base, token.isPresent() ? "with a token" : "no token");
  }
}
