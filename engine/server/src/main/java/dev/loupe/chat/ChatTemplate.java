package dev.loupe.chat;

import com.hubspot.jinjava.Jinjava;
import com.hubspot.jinjava.interpret.JinjavaInterpreter;
import com.hubspot.jinjava.interpret.RenderResult;
import com.hubspot.jinjava.interpret.TemplateError;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

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
  /** Characters of a template. */
  private static final int MOST_TEMPLATE = 1 << 18;

  private static final int MOST_BRACKETS = 16;
  private static final Pattern EXPRESSION = Pattern.compile("\\{[{%].*?[%}]\\}", Pattern.DOTALL);
  private static final Pattern QUOTED =
      Pattern.compile("'(?:[^'\\\\]|\\\\.)*+'|\"(?:[^\"\\\\]|\\\\.)*+\"", Pattern.DOTALL);
  private static final Pattern TEST = Pattern.compile("\\bis\\s+(?:not\\s+)?(\\w+)");
  private static final Pattern FILTER = Pattern.compile("\\|\\s*(\\w+)");

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
    jinjava = Sandbox.jinjava();
    requireReadable();
    JinjavaInterpreter parser = jinjava.newInterpreter();
    try (var _ = JinjavaInterpreter.closeablePushCurrent(parser).get()) {
      var _ = parser.parse(this.template);
      require(parser.getErrorsCopy());
    } catch (RuntimeException | StackOverflowError e) {
      throw failed(String.valueOf(e.getMessage()));
    }
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
        if (!Sandbox.FILTERS.contains(filters.group(1))) {
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
    Rendering rendering = Rendering.begin();
    try {
      RenderResult result = jinjava.renderForResult(template, values);
      if (rendering.refusal() != null) {
        throw refused(rendering.refusal());
      }
      require(result.getErrors());
      return result.getOutput();
    } catch (Rendering.Ended e) {
      throw rendering.refusal() == null
          ? failed(String.valueOf(e.getMessage()))
          : refused(rendering.refusal());
    } catch (RuntimeException e) {
      throw failed(String.valueOf(e.getMessage()));
    } catch (StackOverflowError e) {
      throw failed("it is nested too deep");
    } finally {
      Rendering.end();
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
}
