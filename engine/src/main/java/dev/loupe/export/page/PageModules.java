package dev.loupe.export.page;

import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.regex.MatchResult;
import java.util.regex.Pattern;

/**
 * What Loupe's pages share: ES modules (colours, axes, marks, spelling) and the style of drawings.
 * The workbench gets them as files. A page of one file can't import anything, so there they become
 * part of its script.
 */
public final class PageModules {
  private static final Pattern IMPORT =
      Pattern.compile("^import \\{ (.*) } from '\\./([a-z]+)\\.js';\n", Pattern.MULTILINE);
  private static final Pattern EXPORT =
      Pattern.compile("^export (?=(?:const|function) (\\w+))", Pattern.MULTILINE);

  private PageModules() {}

  /** The text of a shared file by its name, or nothing where none has this name. */
  public static Optional<String> read(String file) {
    try (InputStream in = PageModules.class.getResourceAsStream("modules/" + file)) {
      return in == null
          ? Optional.empty()
          : Optional.of(new String(in.readAllBytes(), StandardCharsets.UTF_8));
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  /**
   * A script that needs no other file: each module that it imports, directly or not, becomes a
   * function that is called once and answers what the module exports.
   *
   * @throws IllegalStateException if a module imports what is not exported
   */
  public static String inline(String script) {
    Map<String, String> modules = new LinkedHashMap<>();
    String own = scope(script, modules);
    return "'use strict';\n" + String.join("", modules.values()) + "(() => {\n" + own + "})();\n";
  }

  /** The body of a function that is a module; adds to {@code modules} those that it imports. */
  private static String scope(String text, Map<String, String> modules) {
    return IMPORT
        .matcher(text)
        .replaceAll(
            found -> {
              String wanted = found.group(1);
              String module = found.group(2);
              if (!modules.containsKey(module)) {
                modules.put(module, function(module, modules));
              }
              if (!exports(module).containsAll(List.of(wanted.split(", ", -1)))) {
                throw new IllegalStateException(module + ".js does not export all of " + wanted);
              }
              return "const { %s } = %s\\$;\n".formatted(wanted, module);
            });
  }

  private static String function(String module, Map<String, String> modules) {
    String body = EXPORT.matcher(scope(text(module), modules)).replaceAll("");
    return "const %s$ = (() => {\n%sreturn { %s };\n})();\n"
        .formatted(module, body, String.join(", ", exports(module)));
  }

  private static List<String> exports(String module) {
    return EXPORT.matcher(text(module)).results().map((MatchResult r) -> r.group(1)).toList();
  }

  private static String text(String module) {
    return read(module + ".js")
        .orElseThrow(() -> new IllegalStateException("there is no module " + module + ".js"));
  }
}
