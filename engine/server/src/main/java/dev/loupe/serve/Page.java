package dev.loupe.serve;

import static java.nio.charset.StandardCharsets.UTF_8;

import dev.loupe.export.page.PageModules;
import dev.loupe.serve.http.Exchange;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.util.HashMap;
import java.util.Map;
import java.util.Objects;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * The files of the workbench, by the paths that they are served at: those of this package, and the
 * modules that it shares with Loupe's other pages. They lie in the class path and are read once; a
 * path that a client sends is looked up among these and nowhere else.
 */
final class Page {
  /**
   * Nothing from elsewhere, and no script or style in the page itself; pages of this machine, such
   * as a notebook's, may frame it (W3C CSP Level 3).
   */
  private static final String POLICY =
      "default-src 'self'; img-src 'self' blob:; base-uri 'none'; form-action 'none';"
          + " frame-ancestors 'self' http://localhost:* http://127.0.0.1:*";

  /** How files of the page name each other. */
  private static final Pattern REFERENCE =
      Pattern.compile("[\"'](?:\\./|/page/)([a-z-]+\\.(?:js|css|svg))[\"']");

  private static final Map<String, String> LIBRARIES =
      Map.of("lit-html.js", "/META-INF/resources/webjars/lit-html/3.3.1/lit-html.js");

  private record File(String type, String text) {}

  private final Map<String, File> files = new HashMap<>();

  Page() {
    add("/", "page/index.html");
  }

  /** Adds a file and those that it names. */
  private void add(String path, String resource) {
    String name = resource.substring(resource.lastIndexOf('/') + 1);
    String text = PageModules.read(name).orElseGet(() -> read(resource));
    File file = new File(type(name), text);
    files.put(path, file);
    if (LIBRARIES.containsValue(resource)) {
      return;
    }
    Matcher reference = REFERENCE.matcher(file.text);
    while (reference.find()) {
      String named = reference.group(1);
      if (!files.containsKey("/page/" + named)) {
        add("/page/" + named, LIBRARIES.getOrDefault(named, "page/" + named));
      }
    }
  }

  private static String type(String name) {
    return switch (name.substring(name.lastIndexOf('.'))) {
      case ".html" -> "text/html";
      case ".css" -> "text/css";
      case ".svg" -> "image/svg+xml";
      default -> "text/javascript";
    };
  }

  /** The text of a resource of this package. */
  static String read(String name) {
    try (InputStream in = Page.class.getResourceAsStream(name)) {
      return new String(Objects.requireNonNull(in, name).readAllBytes(), UTF_8);
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  boolean has(String path) {
    return files.containsKey(path);
  }

  void send(Exchange exchange) {
    File file = Objects.requireNonNull(files.get(exchange.request().path()));
    exchange.send(
        200,
        file.type,
        file.text,
        Map.of("content-security-policy", POLICY, "referrer-policy", "no-referrer"));
  }
}
