package dev.loupe.serve.completions;

import com.google.gson.JsonElement;
import com.google.gson.JsonNull;
import com.google.gson.JsonObject;
import dev.loupe.Loupe;
import dev.loupe.chat.ChatTemplate;
import dev.loupe.chat.ChatTemplateException;
import dev.loupe.serve.http.ApiException;
import dev.loupe.serve.http.Fields;
import dev.loupe.serve.http.KnownFields;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.OptionalInt;
import java.util.Set;
import java.util.function.UnaryOperator;
import org.jspecify.annotations.Nullable;

/**
 * Conversations, as OpenAI's chat API has them: the template makes a text of the messages, which is
 * continued.
 *
 * <p>Special tokens of the template are such. Those that a message spells are plain characters: a
 * mark is put into them, which the tokenizer takes out again (see {@link
 * dev.loupe.text.Tokenizer#encodeMarked}). So nobody ends a turn by a text that says so.
 */
public final class Chat implements Completions.Kind {
  private static final String MESSAGES = "messages";
  private static final Set<String> ROLES = Set.of("system", "user", "assistant");
  private static final int MOST_MESSAGES = 1024;
  private static final int MOST_LOGPROBS = 20;

  /** Unicode's noncharacters FDD0 to FDEF, which are meant for use within a program. */
  private static final char FIRST_MARK = '\uFDD0';

  private static final char LAST_MARK = '\uFDEF';

  private final ChatTemplate template;
  private final Loupe loupe;
  private final String model;

  public Chat(ChatTemplate template, Loupe loupe, String model) {
    this.template = template;
    this.loupe = loupe;
    this.model = model;
  }

  @Override
  public CompletionRequest read(Fields fields) {
    CompletionRequest.requireModel(fields, model);
    KnownFields.CHAT.check(fields);
    loupe
        .tokenizer()
        .whyNoText()
        .ifPresent(
            why -> {
              throw ApiException.field(MESSAGES, null, why);
            });
    List<Map<String, Object>> messages = messages(fields.get(MESSAGES));
    boolean toBeAnswered =
        fields.get("add_generation_prompt") == null || fields.flag("add_generation_prompt");
    int tokens = tokens(fields);
    char mark = mark(messages);
    Prompts prompts =
        Prompts.of(
            MESSAGES,
            () -> render(marked(messages, mark), toBeAnswered),
            mark,
            loupe,
            new Prompts.Writing("max_completion_tokens", Math.max(1, tokens), false));
    return CompletionRequest.of(
        fields,
        loupe,
        prompts,
        tokens,
        (int) fields.whole("n", 1, 1, CompletionRequest.MOST_CHOICES),
        stopTokens(fields),
        false,
        logprobs(fields),
        false);
  }

  private static int tokens(Fields fields) {
    long old = fields.whole("max_tokens", -1, 0, 1 << 20);
    long today = fields.whole("max_completion_tokens", -1, 0, 1 << 20);
    if (old >= 0 && today >= 0 && old != today) {
      throw ApiException.field(
          "max_tokens",
          null,
          "max_tokens is %d and max_completion_tokens %d: give one".formatted(old, today));
    }
    return (int) Math.max(old, today);
  }

  private static int logprobs(Fields fields) {
    int top = (int) fields.whole("top_logprobs", 0, 0, MOST_LOGPROBS);
    if (fields.flag("logprobs")) {
      return top;
    }
    if (fields.get("top_logprobs") != null) {
      throw ApiException.field(
          "top_logprobs", null, "top_logprobs is given and logprobs is not true");
    }
    return -1;
  }

  /** The client's, and the token that the tokenizer's files say ends a turn. */
  private Set<Integer> stopTokens(Fields fields) {
    Set<Integer> all =
        new HashSet<>(
            CompletionRequest.stopTokens(fields.get("stop_token_ids"), loupe.tokenizer()));
    if (!fields.flag("ignore_eos")) {
      OptionalInt end = loupe.tokenizer().idOf(template.token("eos_token"));
      end.ifPresent(
          id -> {
            if (loupe.tokenizer().contains(id)) {
              all.add(id);
            }
          });
    }
    return all;
  }

  private static List<Map<String, Object>> messages(@Nullable JsonElement value) {
    if (value == null || !value.isJsonArray() || value.getAsJsonArray().isEmpty()) {
      throw ApiException.field(MESSAGES, null, "messages is not an array of at least one message");
    }
    if (value.getAsJsonArray().size() > MOST_MESSAGES) {
      throw ApiException.field(
          MESSAGES,
          null,
          "%d messages, more than %d".formatted(value.getAsJsonArray().size(), MOST_MESSAGES));
    }
    List<Map<String, Object>> messages = new ArrayList<>();
    for (JsonElement each : value.getAsJsonArray()) {
      if (!each.isJsonObject()) {
        throw Fields.wrong(MESSAGES, each, "an object with role and content");
      }
      Fields fields = new Fields(each.getAsJsonObject());
      KnownFields.MESSAGE.check(fields);
      JsonElement role = fields.get("role");
      if (role == null || !Fields.isString(role) || !ROLES.contains(role.getAsString())) {
        throw Fields.wrong(
            "role", role == null ? JsonNull.INSTANCE : role, "system, user or assistant");
      }
      Map<String, Object> message = new LinkedHashMap<>();
      message.put("role", role.getAsString());
      message.put("content", content(fields.get("content")));
      String name = fields.string("name");
      if (name != null) {
        message.put("name", name);
      }
      messages.add(message);
    }
    return messages;
  }

  /** A text, or the texts of several parts with line ends between them, as vLLM joins them. */
  private static String content(@Nullable JsonElement content) {
    if (content != null && Fields.isString(content)) {
      return content.getAsString();
    }
    if (content == null || !content.isJsonArray()) {
      throw Fields.wrong(
          "content",
          content == null ? JsonNull.INSTANCE : content,
          "a string or an array of parts");
    }
    List<String> texts = new ArrayList<>();
    for (JsonElement part : content.getAsJsonArray()) {
      Fields fields = part.isJsonObject() ? new Fields(part.getAsJsonObject()) : null;
      String type = fields == null ? null : fields.string("type");
      if (fields == null || type == null || !type.equals("text")) {
        throw Fields.wrong("content", part, "a part of type text");
      }
      KnownFields.PART.check(fields);
      String text = fields.string("text");
      if (text == null) {
        throw Fields.wrong("content", part, "a part with a text");
      }
      texts.add(text);
    }
    return String.join("\n", texts);
  }

  private char mark(List<Map<String, Object>> messages) {
    String all = messages + template.text();
    for (char mark = FIRST_MARK; mark <= LAST_MARK; mark++) {
      if (all.indexOf(mark) < 0) {
        return mark;
      }
    }
    throw ApiException.field(MESSAGES, null, "the messages have all of Unicode's noncharacters");
  }

  private List<Map<String, Object>> marked(List<Map<String, Object>> messages, char mark) {
    UnaryOperator<Object> marked = text -> loupe.tokenizer().marked(text.toString(), mark);
    List<Map<String, Object>> all = new ArrayList<>();
    for (Map<String, Object> message : messages) {
      Map<String, Object> copy = new LinkedHashMap<>(message);
      copy.replaceAll((_, value) -> marked.apply(value));
      all.add(copy);
    }
    return all;
  }

  private String render(List<Map<String, Object>> messages, boolean toBeAnswered) {
    try {
      return template.render(messages, toBeAnswered);
    } catch (ChatTemplateException e) {
      throw ApiException.field(MESSAGES, "chat_template", String.valueOf(e.getMessage()));
    }
  }

  @Override
  public String prefix() {
    return "chatcmpl-";
  }

  @Override
  public String object(boolean stream) {
    return stream ? "chat.completion.chunk" : "chat.completion";
  }

  @Override
  public JsonObject whole(CompletionRequest request, Choice choice, int index) {
    return choice.message(request, index);
  }

  @Override
  public JsonObject piece(String text, int index, boolean first) {
    JsonObject delta = new JsonObject();
    if (first) {
      delta.addProperty("role", "assistant");
    }
    delta.addProperty("content", text);
    JsonObject choice = new JsonObject();
    choice.addProperty("index", index);
    choice.add("delta", delta);
    choice.add("logprobs", JsonNull.INSTANCE);
    choice.add("finish_reason", JsonNull.INSTANCE);
    return choice;
  }

  @Override
  public JsonObject end(
      CompletionRequest request, Choice choice, int index, String rest, boolean first) {
    JsonObject end = first ? piece(rest, index, true) : piece("", index, false);
    JsonObject whole = choice.message(request, index);
    if (!first) {
      end.add("delta", new JsonObject());
    }
    end.add("logprobs", whole.get("logprobs"));
    end.add("finish_reason", whole.get("finish_reason"));
    return end;
  }
}
