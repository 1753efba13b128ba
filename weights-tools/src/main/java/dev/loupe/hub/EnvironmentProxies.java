package dev.loupe.hub;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.Proxy;
import java.net.ProxySelector;
import java.net.SocketAddress;
import java.net.URI;
import java.net.URISyntaxException;
import java.net.URLDecoder;
import java.util.Base64;
import java.util.List;
import java.util.Locale;
import java.util.Optional;
import java.util.function.UnaryOperator;
import org.jspecify.annotations.Nullable;

/**
 * The proxies that the environment names, as curl reads it: {@code https_proxy}, {@code
 * http_proxy}, {@code all_proxy}, and {@code no_proxy} for hosts that need none, all but http_proxy
 * in capitals too. Java's own properties ({@code https.proxyHost} ...) win where they are set.
 */
public final class EnvironmentProxies extends ProxySelector {
  private final @Nullable URI http;
  private final @Nullable URI https;
  private final List<String> without;

  /**
   * @throws IllegalArgumentException if a variable holds no proxy's address, or one of a kind that
   *     can't be used
   */
  EnvironmentProxies(UnaryOperator<@Nullable String> env) {
    // a server that runs this would get a client's header Proxy as HTTP_PROXY
    http = proxy(env, "http_proxy", "all_proxy", "ALL_PROXY");
    https = proxy(env, "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY");
    String listed = HubSettings.set(env, "no_proxy");
    listed = listed == null ? HubSettings.set(env, "NO_PROXY") : listed;
    without =
        listed == null ? List.of() : List.of(listed.toLowerCase(Locale.ROOT).split("[,\\s]+"));
  }

  private static @Nullable URI proxy(UnaryOperator<@Nullable String> env, String... variables) {
    for (String variable : variables) {
      String value = HubSettings.set(env, variable);
      if (value != null) {
        return proxy(variable, value.strip());
      }
    }
    return null;
  }

  private static URI proxy(String variable, String value) {
    try {
      URI proxy = new URI(value.contains("://") ? value : "http://" + value).parseServerAuthority();
      if (proxy.getHost() != null && "http".equalsIgnoreCase(proxy.getScheme())) {
        return proxy;
      }
    } catch (URISyntaxException e) {
      // said below; not with the value, which may hold a password
    }
    throw new IllegalArgumentException(
        variable
            + " names no proxy that can be used; they look like http://proxy.example.org:3128");
  }

  @Override
  public List<Proxy> select(URI target) {
    ProxySelector java = ProxySelector.getDefault();
    if (java != null && isSetForJava(target)) {
      return java.select(target);
    }
    URI proxy = proxy(target);
    if (proxy == null) {
      return List.of(Proxy.NO_PROXY);
    }
    int port = proxy.getPort() < 0 ? 80 : proxy.getPort();
    return List.of(new Proxy(Proxy.Type.HTTP, new InetSocketAddress(proxy.getHost(), port)));
  }

  private static boolean isSetForJava(URI target) {
    return System.getProperty(target.getScheme() + ".proxyHost") != null;
  }

  private @Nullable URI proxy(URI target) {
    boolean none = isSetForJava(target) || isWithout(target);
    return none ? null : target.getScheme().equals("https") ? https : http;
  }

  /**
   * {@code example.org} and {@code .example.org} stand for hosts below too, * for all. What runs on
   * this machine is out of a proxy's reach anyway.
   */
  private boolean isWithout(URI target) {
    String host = target.getHost().toLowerCase(Locale.ROOT);
    if (host.matches("localhost|127\\..*|\\[::1]")) {
      return true;
    }
    for (String entry : without) {
      String name = entry.replaceFirst("^\\*?\\.", "");
      boolean named = host.equals(name) || (!name.isEmpty() && host.endsWith("." + name));
      if (entry.equals("*") || named || entry.equals(host + ":" + target.getPort())) {
        return true;
      }
    }
    return false;
  }

  /** What the header Proxy-Authorization has to say on the way to {@code target}, if anything. */
  Optional<String> authorization(URI target) {
    URI proxy = proxy(target);
    String login = proxy == null ? null : proxy.getRawUserInfo();
    if (login == null) {
      return Optional.empty();
    }
    byte[] plain = URLDecoder.decode(login.replace("+", "%2B"), UTF_8).getBytes(UTF_8);
    return Optional.of("Basic " + Base64.getEncoder().encodeToString(plain));
  }

  @Override
  public void connectFailed(URI target, SocketAddress proxy, IOException failure) {
    // whoever asked hears of it
  }
}
