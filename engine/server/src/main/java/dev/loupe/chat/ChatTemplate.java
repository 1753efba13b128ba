package dev.loupe.chat;

import com.hubspot.jinjava.Jinjava;
import com.hubspot.jinjava.JinjavaConfig;
import com.hubspot.jinjava.LegacyOverrides;
import com.hubspot.jinjava.el.JinjavaProcessors;
import com.hubspot.jinjava.interpret.Context;
import com.hubspot.jinjava.interpret.Context.Library;
import com.hubspot.jinjava.interpret.JinjavaInterpreter;
import com.hubspot.jinjava.interpret.RenderResult;
import com.hubspot.jinjava.interpret.TemplateError;
import com.hubspot.jinjava.lib.fn.ELFunctionDefinition;
import com.hubspot.jinjava.tree.Node;
import java.io.FileNotFoundException;
import java.time.Duration;
import java.time.LocalDateTime;
import java.time.ZoneId;
import java.time.format.DateTimeFormatterBuilder;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import org.jspecify.annotations.Nullable;

/**
 * A chat template of Hugging Face's, in Jinja: what makes one text of a conversation. It renders as
 * {@code apply_chat_template} of transformers does, with {@code trim_blocks} and {@code
 * lstrip_blocks}.
 *
 * <p>A template comes with a model and is not trusted. It reaches the values that it is given and
 * nothing else: it calls no methods of Java (see {@link PythonMethods}), reads no files, and has
 * those filters alone that templates use. Time, steps, text and lists have limits. What it can't
 * have is an error that says so; three things of Jinja's are printed otherwise: a printed {@code
 * True}, {@code False} or {@code None} is {@code true}, {@code false} or nothing.
 *
 * <p>Safe for use by several threads.
 *
 * <p>Sources: transformers, {@code utils/chat_template_utils.py}; Jinja 3.1's documentation.
 */
public final class ChatTemplate {
  /** Characters of a template, and of the text that it makes. */
  static final int MOST_TEMPLATE = 1 << 18;

  private static final int MOST_TEXT = 4 << 20;
  private static final int MOST_LIST = 1 << 16;
  private static final int MOST_STEPS = 1 << 20;
  private static final Duration MOST_TIME = Duration.ofSeconds(2);

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
  private static final Set<String> FILTERS =
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

  private static final int MOST_BRACKETS = 16;
  private static final Pattern EXPRESSION = Pattern.compile("\\{[{%].*?[%}]\\}", Pattern.DOTALL);
  private static final Pattern QUOTED =
      Pattern.compile("'(?:[^'\\\\]|\\\\.)*+'|\"(?:[^\"\\\\]|\\\\.)*+\"", Pattern.DOTALL);
  private static final Pattern TEST = Pattern.compile("\\bis\\s+(?:not\\s+)?(\\w+)");
  private static final Pattern FILTER = Pattern.compile("\\|\\s*(\\w+)");

  /** One rendering. */
  private static final class Render {
    private final long deadline = System.nanoTime() + MOST_TIME.toNanos();
    private int steps;
    private @Nullable String refusal;
  }

  /** Ends a rendering; no exception, since the library goes on after those. */
  static final class Ended extends Error {
    private static final long serialVersionUID = 1L;

    Ended(String why) {
      super(why, null, false, false);
    }
  }

  private static final ThreadLocal<@Nullable Render> RENDER = new ThreadLocal<>();

  private final String template;
  private final String source;
  private final Map<String, String> tokens;
  private final Jinjava jinjava;

  /**
   * @param template in Jinja
   * @param source where it is from, for messages
   * @param tokens variables that stand for special tokens, such as {@code bos_token}
   * @throws ChatTemplateException if it can't be used
   */
  public ChatTemplate(String template, String source, Map<String, String> tokens)
      throws ChatTemplateException {
    if (template.length() > MOST_TEMPLATE) {
      throw new ChatTemplateException(
          "the chat template of %s has %d characters, more than %d"
              .formatted(source, template.length(), MOST_TEMPLATE));
    }
    String lines = template.replace("\r\n", "\n");
    this.template = lines.endsWith("\n") ? lines.substring(0, lines.length() - 1) : lines;
    this.source = source;
    this.tokens = Map.copyOf(tokens);
    jinjava = jinjava();
    requireReadable();
    JinjavaInterpreter parser = jinjava.newInterpreter();
    try (var _ = JinjavaInterpreter.closeablePushCurrent(parser).get()) {
      var _ = parser.parse(this.template);
      require(parser.getErrorsCopy());
    } catch (RuntimeException | StackOverflowError e) {
      throw failed(String.valueOf(e.getMessage()));
    }
  }

  private static Jinjava jinjava() {
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
                    JinjavaProcessors.newBuilder().withNodePreProcessor(ChatTemplate::step).build())
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
            "", "raise_exception", ChatTemplate.class, "raiseException", Object.class));
    context.registerFunction(
        new ELFunctionDefinition("", "strftime_now", ChatTemplate.class, "now", String.class));
    return jinjava;
  }

  /**
   * Refuses what the library does not: brackets each of which doubles the time that reading takes,
   * and filters and tests that are not there, for which it prints nothing.
   */
  private void requireReadable() throws ChatTemplateException {
    for (Matcher parts = EXPRESSION.matcher(template); parts.find(); ) {
      String plain = QUOTED.matcher(parts.group()).replaceAll("''");
      int depth = 0;
      for (int i = 0; i < plain.length(); i++) {
        char c = plain.charAt(i);
        depth += "([{".indexOf(c) >= 0 ? 1 : ")]}".indexOf(c) >= 0 ? -1 : 0;
        if (depth > MOST_BRACKETS) {
          throw failed("brackets are nested more than %d deep".formatted(MOST_BRACKETS - 1));
        }
      }
      for (Matcher filters = FILTER.matcher(plain); filters.find(); ) {
        if (!FILTERS.contains(filters.group(1))) {
          throw failed("there is no filter %s here".formatted(filters.group(1)));
        }
      }
      for (Matcher tests = TEST.matcher(plain); tests.find(); ) {
        if (jinjava.getGlobalContext().getExpTest(tests.group(1)) == null) {
          throw failed("there is no test %s here".formatted(tests.group(1)));
        }
      }
    }
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

  /** Where it is from. */
  public String source() {
    return source;
  }

  /** What a variable for a special token stands for; empty if there is none of that name. */
  public String token(String name) {
    return tokens.getOrDefault(name, "");
  }

  /** The template itself. */
  public String text() {
    return template;
  }

  /**
   * The text of a conversation.
   *
   * @param messages in order: maps with {@code role}, {@code content} and what else a template asks
   *     for, of strings, numbers, flags, lists and maps
   * @param toBeAnswered whether the text ends with what begins an answer
   * @throws ChatTemplateException if the template refuses them, fails, or passes a limit
   */
  public String render(List<Map<String, Object>> messages, boolean toBeAnswered)
      throws ChatTemplateException {
    Map<String, Object> values = new HashMap<>(tokens);
    values.put("messages", messages);
    values.put("add_generation_prompt", toBeAnswered);
    Render render = new Render();
    RENDER.set(render);
    try {
      RenderResult result = jinjava.renderForResult(template, values);
      if (render.refusal != null) {
        throw refused(render.refusal);
      }
      require(result.getErrors());
      return result.getOutput();
    } catch (Ended e) {
      throw render.refusal == null
          ? failed(String.valueOf(e.getMessage()))
          : refused(render.refusal);
    } catch (RuntimeException e) {
      throw failed(String.valueOf(e.getMessage()));
    } catch (StackOverflowError e) {
      throw failed("it is nested too deep");
    } finally {
      RENDER.remove();
    }
  }

  private void require(List<TemplateError> errors) throws ChatTemplateException {
    for (TemplateError error : errors) {
      throw failed("line %d: %s".formatted(Math.max(1, error.getLineno()), error.getMessage()));
    }
  }

  private ChatTemplateException failed(String why) {
    String line = why.lines().findFirst().orElse("");
    return new ChatTemplateException(
        "the chat template of %s can't be used: %s".formatted(source, shorter(line)));
  }

  private ChatTemplateException refused(String why) {
    return new ChatTemplateException(
        "the chat template of %s refuses these messages: %s"
            .formatted(source, shorter(why.replaceAll("\\s+", " "))));
  }

  private static String shorter(String text) {
    return text.length() > 200 ? text.substring(0, 200) + "..." : text;
  }

  /** Before each part of a template. */
  private static void step(Node node, JinjavaInterpreter interpreter) {
    step();
  }

  /**
   * Counts a step.
   *
   * @throws Ended if there were too many, they took too long, or the template has refused
   */
  static void step() {
    Render render = RENDER.get();
    if (render == null) {
      return;
    }
    if (render.refusal != null) {
      throw new Ended(render.refusal);
    }
    if (++render.steps > MOST_STEPS) {
      throw new Ended("it takes more than %d steps".formatted(MOST_STEPS));
    }
    if (System.nanoTime() - render.deadline > 0 || Thread.currentThread().isInterrupted()) {
      throw new Ended("it takes longer than %d s".formatted(MOST_TIME.toSeconds()));
    }
  }

  /** {@code raise_exception} of a template. */
  public static String raiseException(Object message) {
    Render render = RENDER.get();
    if (render != null) {
      render.refusal = String.valueOf(message);
    }
    throw new Ended(String.valueOf(message));
  }

  /** {@code strftime_now} of a template: the usual letters of C's strftime, in English. */
  public static String now(String format) {
    DateTimeFormatterBuilder pattern = new DateTimeFormatterBuilder();
    boolean afterPercent = false;
    for (int i = 0; i < format.length(); i++) {
      char c = format.charAt(i);
      if (!afterPercent) {
        afterPercent = c == '%';
        if (!afterPercent) {
          pattern.appendLiteral(c);
        }
        continue;
      }
      afterPercent = false;
      pattern.appendPattern(
          switch (c) {
            case 'Y' -> "uuuu";
            case 'y' -> "uu";
            case 'm' -> "MM";
            case 'd' -> "dd";
            case 'b' -> "MMM";
            case 'B' -> "MMMM";
            case 'a' -> "EEE";
            case 'A' -> "EEEE";
            case 'H' -> "HH";
            case 'I' -> "hh";
            case 'M' -> "mm";
            case 'S' -> "ss";
            case 'p' -> "a";
            case 'j' -> "DDD";
            case '%' -> "'%'";
            default -> throw new IllegalArgumentException("strftime_now has no %" + c);
          });
    }
    return LocalDateTime.now(ZoneId.systemDefault()).format(pattern.toFormatter(Locale.ENGLISH));
  }
}
