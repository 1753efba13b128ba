package dev.loupe.serve.completions;

import static java.nio.charset.StandardCharsets.UTF_8;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import dev.loupe.Loupe;
import dev.loupe.serve.http.ApiException;
import dev.loupe.serve.http.Fields;
import dev.loupe.text.Count;
import dev.loupe.text.Tokenizer;
import dev.loupe.weights.config.Gpt2Config;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.function.Supplier;
import org.jspecify.annotations.Nullable;

/**
 * The prompts of a request, in one of their four forms: a text, texts, ids, arrays of ids. What is
 * wrong whatever a text's tokens are is found at once; {@link #read} reads the texts, which takes
 * time.
 *
 * @param name of the request's field
 * @param special whether special tokens in a text are taken as such
 * @param front whether a text gets the tokens in front that the tokenizer's files put there
 */
public record Prompts(
    String name,
    List<Prompt> all,
    Loupe loupe,
    boolean special,
    boolean front,
    Writing writing,
    Truncation truncation) {
  private static final int MOST = 128;
  private static final char NO_MARK = 0;

  /**
   * A text, or ids.
   *
   * @param mark as {@link Tokenizer#encodeMarked} has it; 0 for a text without marks
   */
  @SuppressWarnings("ArrayRecordComponent") // not compared, and no one changes it
  private record Prompt(@Nullable Supplier<String> text, int[] ids, char mark) {}

  /**
   * What is to be written after each.
   *
   * @param field of the request that says how many tokens
   * @param lastIsRead whether the last of them takes a position too
   */
  public record Writing(String field, int tokens, boolean lastIsRead) {
    /** The most tokens that a prompt may have; 0 or less where no prompt fits. */
    int room(int context) {
      return Math.min(context, context - tokens + (lastIsRead ? 0 : 1));
    }
  }

  /**
   * How many tokens of a prompt are kept, the last of them: 0 for all, -1 for as many as the
   * context has room for.
   */
  public record Truncation(int tokens) {
    public static final Truncation NONE = new Truncation(0);

    int[] of(int[] ids, int room) {
      int most = tokens < 0 ? Math.max(1, room) : tokens;
      return tokens == 0 || ids.length <= most
          ? ids
          : Arrays.copyOfRange(ids, ids.length - most, ids.length);
    }
  }

  /** Says between two prompts that nobody waits for them any more, by throwing. */
  public interface Wanted {
    void require();
  }

  /**
   * Those of a request with the fields special and, as vLLM names it, add_special_tokens.
   *
   * @throws ApiException if the field is not of one of the forms, an id is no token, or a prompt is
   *     longer than the context whatever its tokens are
   */
  public static Prompts of(
      String name, Fields fields, Loupe loupe, Writing writing, Truncation truncation) {
    Prompts prompts =
        new Prompts(
            name,
            new ArrayList<>(),
            loupe,
            fields.flag("special"),
            front(fields),
            writing,
            truncation);
    prompts.add(fields.get(name));
    return prompts;
  }

  /**
   * The text of a conversation.
   *
   * @param text makes it, when its turn comes
   * @param mark as {@link Tokenizer#encodeMarked} has it
   */
  public static Prompts of(
      String name, Supplier<String> text, char mark, Loupe loupe, Writing writing) {
    return new Prompts(
        name,
        List.of(new Prompt(text, new int[0], mark)),
        loupe,
        true,
        false,
        writing,
        Truncation.NONE);
  }

  static boolean front(Fields fields) {
    return fields.get("add_special_tokens") == null || fields.flag("add_special_tokens");
  }

  public int size() {
    return all.size();
  }

  /** Tokens that each has at most. */
  int mostTokens() {
    return loupe.info().config().nPositions();
  }

  private void add(@Nullable JsonElement value) {
    if (value == null) {
      add(""); // as OpenAI: a new document
      return;
    }
    if (Fields.isString(value)) {
      add(value.getAsString());
      return;
    }
    if (!value.isJsonArray() || value.getAsJsonArray().isEmpty()) {
      throw wrong(value);
    }
    JsonArray list = value.getAsJsonArray();
    if (Fields.isNumber(list.get(0))) {
      add(list);
      return;
    }
    if (list.size() > MOST) {
      throw ApiException.field(name, null, "%d prompts, more than %d".formatted(list.size(), MOST));
    }
    for (JsonElement prompt : list) {
      if (Fields.isString(prompt)) {
        add(prompt.getAsString());
      } else if (prompt.isJsonArray()) {
        add(prompt.getAsJsonArray());
      } else {
        throw wrong(value);
      }
    }
  }

  private ApiException wrong(JsonElement value) {
    return Fields.wrong(
        name, value, "a string, an array of strings, of token ids, or of arrays of them");
  }

  private void add(String text) {
    if (!text.isEmpty()) {
      loupe
          .tokenizer()
          .whyNoText()
          .ifPresent(
              why -> {
                throw ApiException.field(name, null, why);
              });
      requireShort(text);
    } else if (loupe.info().config().bosTokenId() < 0
        && !(front && loupe.tokenizer().front().length > 0)) {
      throw ApiException.field(
          name, null, "the prompt is empty and the model has no beginning-of-text token");
    }
    all.add(new Prompt(() -> text, new int[0], NO_MARK));
  }

  /** Refuses a text that is longer than the context whatever its tokens are. */
  private void requireShort(String text) {
    long most = loupe.tokenizer().mostBytes(mostTokens());
    if (truncation.tokens == 0 && text.length() > most / 3) { // a char is 3 bytes at most
      int bytes = text.getBytes(UTF_8).length;
      if (bytes > most) {
        throw ApiException.field(
            name,
            "context_length_exceeded",
            "the prompt has %d bytes: the model's context holds %s of at most %d bytes in all"
                .formatted(bytes, Count.of(mostTokens(), "token"), most));
      }
    }
  }

  private void add(JsonArray list) {
    if (list.isEmpty()) {
      throw ApiException.field(name, null, "a prompt without token ids");
    }
    all.add(new Prompt(null, checked(ids(name, list, loupe.tokenizer())), NO_MARK));
  }

  /** The values of the field {@code name} as ids of tokens. */
  static int[] ids(String name, JsonArray values, Tokenizer tokenizer) {
    int most = tokenizer.ids().length() - 1;
    int[] ids = new int[values.size()];
    for (int i = 0; i < ids.length; i++) {
      ids[i] = (int) Fields.whole(name, values.get(i), 0, most);
      if (!tokenizer.contains(ids[i])) {
        throw ApiException.field(name, null, "there is no token %d".formatted(ids[i]));
      }
    }
    return ids;
  }

  /** Those that are kept of a prompt's ids, which leave room for what is to be written. */
  private int[] checked(int[] ids) {
    int room = writing.room(mostTokens());
    int[] kept = truncation.of(ids, room);
    if (kept.length > room) {
      throw ApiException.field(
          name,
          "context_length_exceeded",
          "the prompt has %s and %s is %d: the model's context holds %d"
              .formatted(
                  Count.of(kept.length, "token"), writing.field, writing.tokens, mostTokens()));
    }
    return kept;
  }

  /**
   * The ids of each, none without any.
   *
   * @param wanted is asked before each text
   * @throws ApiException if one is too long, or can't be spelled
   */
  public List<int[]> read(Wanted wanted) {
    List<int[]> ids = new ArrayList<>();
    for (Prompt prompt : all) {
      if (prompt.text == null) {
        ids.add(prompt.ids);
      } else {
        wanted.require();
        String text = prompt.text.get();
        requireShort(text);
        ids.add(checked(encode(text, prompt.mark)));
      }
    }
    return ids;
  }

  private int[] encode(String text, char mark) {
    try {
      Tokenizer tokenizer = loupe.tokenizer();
      int[] ids =
          mark == NO_MARK
              ? tokenizer.encodePrompt(text, special, front)
              : tokenizer.encodeMarked(text, mark);
      Gpt2Config config = loupe.info().config();
      return ids.length > 0 ? ids : new int[] {config.bosTokenId()};
    } catch (IllegalArgumentException e) {
      throw ApiException.field(name, null, String.valueOf(e.getMessage()));
    }
  }
}
