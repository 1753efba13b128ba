package dev.loupe.serve;

import static java.nio.charset.StandardCharsets.UTF_8;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonNull;
import com.google.gson.JsonObject;
import com.google.gson.JsonPrimitive;
import dev.loupe.Generation;
import dev.loupe.Generation.Finish;
import dev.loupe.Token;
import dev.loupe.text.Tokenizer;
import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;

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
    boolean stopped = run.finish() == Finish.STOP || run.finish() == Finish.EOS;
    choice.addProperty("finish_reason", stopped ? "stop" : "length");
    return choice;
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
    String text = prompt() + run.text();
    int end = text.codePointCount(0, text.length());
    for (Token token : run.tokens()) {
      boolean cut = run.finish() == Finish.STOP && token.generated() && token.charStart() >= end;
      if (cut || (!echo && !token.generated())) {
        continue;
      }
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
