package dev.loupe.serve.completions;

import static java.nio.charset.StandardCharsets.UTF_8;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonNull;
import com.google.gson.JsonObject;
import com.google.gson.JsonPrimitive;
import dev.loupe.generate.Generation;
import dev.loupe.generate.Generation.Finish;
import dev.loupe.generate.Token;
import dev.loupe.text.Tokenizer;
import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.util.List;

/** A finished run as one of the choices of an answer. */
record Choice(Tokenizer tokenizer, Generation run, boolean special) {
  /** For a probability of 0, whose logarithm JSON has no number for; vLLM's. */
  private static final double LEAST_LOGPROB = -9999;

  JsonObject json(CompletionRequest request, int index) {
    JsonObject choice = new JsonObject();
    choice.addProperty("text", request.echo() ? prompt() + run.text() : run.text());
    if (tokenizer.whyNoText().isPresent()) {
      choice.add("token_ids", ids(request.echo() ? 0 : run.promptLength()));
    }
    choice.addProperty("index", index);
    choice.add("logprobs", request.logprobs() < 0 ? JsonNull.INSTANCE : logprobs(request.echo()));
    choice.addProperty("finish_reason", finish());
    return choice;
  }

  /** Likewise, as an answer in a conversation. */
  JsonObject message(CompletionRequest request, int index) {
    JsonObject message = new JsonObject();
    message.addProperty("role", "assistant");
    message.addProperty("content", run.text());
    message.add("refusal", JsonNull.INSTANCE);
    JsonObject choice = new JsonObject();
    choice.addProperty("index", index);
    choice.add("message", message);
    choice.add("logprobs", request.logprobs() < 0 ? JsonNull.INSTANCE : content());
    choice.addProperty("finish_reason", finish());
    return choice;
  }

  private String finish() {
    return run.finish() == Finish.STOP || run.finish() == Finish.EOS ? "stop" : "length";
  }

  /** An entry for each token that was written, as OpenAI's chat API has them. */
  private JsonObject content() {
    JsonArray content = new JsonArray();
    for (Token token : written(false)) {
      JsonObject one = entry(token.id(), token.logprob());
      JsonArray top = new JsonArray();
      for (Token.Candidate candidate : token.top()) {
        top.add(entry(candidate.id(), candidate.logprob()));
      }
      one.add("top_logprobs", top);
      content.add(one);
    }
    JsonObject logprobs = new JsonObject();
    logprobs.add("content", content);
    logprobs.add("refusal", JsonNull.INSTANCE);
    return logprobs;
  }

  private JsonObject entry(int id, double logprob) {
    JsonArray bytes = new JsonArray();
    for (byte b : tokenizer.bytes(id)) {
      bytes.add(b & 0xff);
    }
    JsonObject entry = new JsonObject();
    entry.addProperty("token", spelling(id));
    entry.add("logprob", logprob(logprob));
    entry.add("bytes", bytes);
    return entry;
  }

  /** The tokens of the text, and those of the prompt where they are wanted. */
  private List<Token> written(boolean echo) {
    String text = prompt() + run.text();
    int end = text.codePointCount(0, text.length());
    return run.tokens().stream()
        .filter(token -> echo || token.generated())
        .filter(
            token -> run.finish() != Finish.STOP || !token.generated() || token.charStart() < end)
        .toList();
  }

  /** What stands for the text of a model that takes token ids alone; vLLM's name. */
  private JsonArray ids(int from) {
    JsonArray ids = new JsonArray();
    run.tokens().stream().skip(from).forEach(token -> ids.add(token.id()));
    return ids;
  }

  private String prompt() {
    return tokenizer.decode(
        run.tokens().stream().limit(run.promptLength()).mapToInt(Token::id).toArray(), special);
  }

  /**
   * Four lists with an entry for each token, as OpenAI's older API has them. {@code text_offset}
   * counts code points from the beginning of the prompt, whether that is echoed or not. Tokens of a
   * stop string are left out, as its text is.
   */
  private JsonObject logprobs(boolean echo) {
    JsonArray tokens = new JsonArray();
    JsonArray own = new JsonArray();
    JsonArray top = new JsonArray();
    JsonArray offsets = new JsonArray();
    for (Token token : written(echo)) {
      tokens.add(spelling(token.id()));
      own.add(logprob(token.logprob()));
      top.add(Double.isNaN(token.logprob()) ? JsonNull.INSTANCE : likeliest(token));
      offsets.add(token.charStart());
    }
    JsonObject logprobs = new JsonObject();
    logprobs.add("tokens", tokens);
    logprobs.add("token_logprobs", own);
    logprobs.add("top_logprobs", top);
    logprobs.add("text_offset", offsets);
    return logprobs;
  }

  private JsonElement likeliest(Token token) {
    JsonObject likeliest = new JsonObject();
    for (Token.Candidate candidate : token.top()) {
      likeliest.add(spelling(candidate.id()), logprob(candidate.logprob()));
    }
    likeliest.add(spelling(token.id()), logprob(token.logprob())); // always there, as OpenAI's is
    return likeliest;
  }

  private static JsonElement logprob(double value) {
    return Double.isNaN(value)
        ? JsonNull.INSTANCE
        : new JsonPrimitive(Math.max(value, LEAST_LOGPROB));
  }

  /**
   * A token's text, or for a part of a character its bytes as {@code bytes:\xe2\x82}, or where
   * there is no text {@code token_id:17}, which is vLLM's.
   */
  private String spelling(int id) {
    if (tokenizer.whyNoText().isPresent()) {
      return "token_id:" + id;
    }
    byte[] bytes = tokenizer.bytes(id);
    try {
      return UTF_8.newDecoder().decode(ByteBuffer.wrap(bytes)).toString();
    } catch (CharacterCodingException e) {
      StringBuilder spelling = new StringBuilder("bytes:");
      for (byte b : bytes) {
        spelling.append("\\x%02x".formatted(b & 0xff));
      }
      return spelling.toString();
    }
  }
}
