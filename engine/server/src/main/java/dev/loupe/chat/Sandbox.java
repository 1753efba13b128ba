package dev.loupe.chat;

import com.hubspot.jinjava.Jinjava;
import com.hubspot.jinjava.JinjavaConfig;
import com.hubspot.jinjava.LegacyOverrides;
import com.hubspot.jinjava.el.JinjavaProcessors;
import com.hubspot.jinjava.interpret.Context;
import com.hubspot.jinjava.interpret.Context.Library;
import com.hubspot.jinjava.lib.fn.ELFunctionDefinition;
import java.io.FileNotFoundException;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.stream.Stream;

/**
 * The Jinja that templates get: those tags, filters and functions alone that they need, without
 * files and without Java's methods, and with bounds of text and lists.
 */
final class Sandbox {
  /** Characters of the text that a template makes, and of each that it makes on the way. */
  private static final int MOST_TEXT = 4 << 20;

  private static final int MOST_LIST = 1 << 16;

  private static final Set<String> TAGS =
      Set.of(
          "if",
          "elif",
          "else",
          "endif",
          "for",
          "endfor",
          "set",
          "endset",
          "macro",
          "endmacro",
          "break",
          "continue",
          "raw",
          "endraw",
          "generation",
          "endgeneration");
  static final Set<String> FILTERS =
      Set.of(
          "abs",
          "capitalize",
          "count",
          "d",
          "default",
          "first",
          "float",
          "int",
          "items",
          "join",
          "last",
          "length",
          "list",
          "lower",
          "map",
          "reject",
          "rejectattr",
          "replace",
          "reverse",
          "round",
          "safe",
          "select",
          "selectattr",
          "sort",
          "string",
          "title",
          "tojson",
          "trim",
          "unique",
          "upper");
  private static final Set<String> FUNCTIONS = Set.of(":range", ":namespace");

  private Sandbox() {}

  /** Jinja with these bounds. */
  static Jinjava jinjava() {
    Map<Library, Set<String>> disabled = new HashMap<>();
    Context all = new Jinjava().getGlobalContext();
    disabled.put(Library.TAG, without(TAGS, all.getAllTags().stream().map(t -> t.getName())));
    disabled.put(
        Library.FILTER, without(FILTERS, all.getAllFilters().stream().map(f -> f.getName())));
    disabled.put(
        Library.FUNCTION, without(FUNCTIONS, all.getAllFunctions().stream().map(f -> f.getName())));
    Jinjava jinjava =
        new Jinjava(
            JinjavaConfig.newBuilder()
                .withLegacyOverrides(jinja())
                .withTrimBlocks(true)
                .withLstripBlocks(true)
                .withKeepTrailingNewline(true) // false would take one from the text, too
                .withNestedInterpretationEnabled(false) // else what a user says is a template too
                .withElResolver(new PythonMethods())
                .withDisabled(disabled)
                .withLocale(Locale.ROOT)
                .withMaxOutputSize(MOST_TEXT)
                .withMaxStringLength(MOST_TEXT)
                .withMaxListSize(MOST_LIST)
                .withMaxMapSize(MOST_LIST)
                .withRangeLimit(MOST_LIST)
                .withEnableRecursiveMacroCalls(false)
                .withProcessors(
                    JinjavaProcessors.newBuilder()
                        .withNodePreProcessor((_, _) -> Rendering.step())
                        .build())
                .build());
    jinjava.setResourceLocator(
        (name, charset, interpreter) -> {
          throw new FileNotFoundException(name);
        });
    Context context = jinjava.getGlobalContext();
    context.registerFilter(new ToJson());
    context.registerFilter(new Length("length"));
    context.registerFilter(new Length("count"));
    context.registerTag(new Loop());
    context.registerTag(new GenerationTag());
    context.registerFunction(
        new ELFunctionDefinition(
            "", "raise_exception", Rendering.class, "raiseException", Object.class));
    context.registerFunction(
        new ELFunctionDefinition("", "strftime_now", Strftime.class, "now", String.class));
    return jinjava;
  }

  /** Jinja's own ways where the library's older ones differ. */
  private static LegacyOverrides jinja() {
    return LegacyOverrides.newBuilder()
        .withEvaluateMapKeys(true)
        .withIterateOverMapKeys(true)
        .withUsePyishObjectMapper(true)
        .withUseNaturalOperatorPrecedence(true)
        .withParseWhitespaceControlStrictly(true)
        .withAllowAdjacentTextNodes(true)
        .withUseTrimmingForNotesAndExpressions(true)
        .withKeepNullableLoopValues(true)
        .withHandleBackslashInQuotesOnly(true)
        .build();
  }

  private static Set<String> without(Set<String> some, Stream<String> all) {
    Set<String> rest = new HashSet<>(all.toList());
    rest.removeAll(some);
    return rest;
  }
}
