package dev.loupe.generate;

import dev.loupe.text.Count;
import dev.loupe.text.Tokenizer;
import dev.loupe.weights.config.Gpt2Config;

/** What a request reads, and how much a context leaves it to write. */
final class ContextRoom {
  private ContextRoom() {}

  /**
   * The tokens that a request reads.
   *
   * @throws IllegalArgumentException if the vocabulary lacks one of its ids, or it asks for text
   *     where there is none
   */
  static int[] ids(GenerateRequest request, Tokenizer tokenizer, Gpt2Config config) {
    if (!request.stops.isEmpty() && tokenizer.whyNoText().isPresent()) {
      throw new IllegalArgumentException(
          "stop strings end a text, and this model takes token ids alone: "
              + tokenizer.whyNoText().get());
    }
    int[] ids = request.prompt.tokens(tokenizer, config);
    request.stopTokens.forEach(tokenizer::requireToken);
    return ids;
  }

  /** How many tokens a request writes at most, after so many of its prompt. */
  static int tokensToWrite(GenerateRequest request, int prompt, Gpt2Config config) {
    if (request.slide) {
      return request.tokens < 0 ? GenerateRequest.DEFAULT_TOKENS : request.tokens;
    }
    int over = prompt - config.nPositions();
    if (over > 0) {
      throw new ContextLengthException(
          "the prompt has %s and the model reads %d: shorten it by %d, or let the context slide"
              .formatted(Count.of(prompt, "token"), config.nPositions(), over),
          prompt,
          config.nPositions());
    }
    boolean lastHasPosition = request.lastHasPosition();
    int room = -over + (lastHasPosition ? 0 : 1); // nothing is predicted from the last token
    if (request.tokens > room || (request.tokens < 0 && room == 0)) {
      throw new ContextLengthException(
          "%d prompt tokens leave room for %d new ones in a context of %d%s: ask for fewer, or let the context slide"
              .formatted(
                  prompt,
                  room,
                  config.nPositions(),
                  lastHasPosition ? ", where the last is read too" : ""),
          prompt,
          config.nPositions());
    }
    return request.tokens < 0 ? Math.min(GenerateRequest.DEFAULT_TOKENS, room) : request.tokens;
  }

  /** Attention is kept of prompts that the model reads whole. */
  static void requireWhole(GenerateRequest request, int prompt, Gpt2Config config) {
    if (request.attention.isPresent() && prompt > config.nPositions()) {
      throw new IllegalArgumentException(
          "attention of a prompt longer than the context: %s, the model reads %d"
              .formatted(Count.of(prompt, "token"), config.nPositions()));
    }
  }
}
