package dev.loupe.generate;

import dev.loupe.attention.AttentionResult;
import dev.loupe.generate.Generation.Finish;
import dev.loupe.model.ModelInfo;
import dev.loupe.sampling.Sampler;
import dev.loupe.sampling.TokenDistribution;
import dev.loupe.text.CharSpan;
import dev.loupe.text.Labels;
import dev.loupe.text.StopStrings;
import dev.loupe.text.StreamDecoder;
import dev.loupe.text.Tokenizer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.BitSet;
import java.util.HexFormat;
import java.util.List;
import org.jspecify.annotations.Nullable;

/** One continuation of the prompt under way: its tokens, its text, and what is known of each. */
final class Sample {
  /** What the model thought of one token. */
  private record TokenScore(double logprob, int rank, List<TokenDistribution.Entry> top) {
    static final TokenScore NONE = new TokenScore(Double.NaN, -1, List.of());
  }

  private static final int[] NO_IDS = {};
  private static final BitSet NO_TOKENS = new BitSet();

  final int number;
  final BitSet seen = new BitSet();
  final AttentionResult attention;
  private final Tokenizer tokenizer;
  private final BitSet sayable;
  private final GenerateRequest.Listener listener;
  private final StreamDecoder decoder;
  private final StopStrings stops;
  private final StringBuilder text = new StringBuilder();
  private final int promptLength;
  private final int drawnAs; // number by which the draw is counted
  private final BitSet ends; // ids that end the text
  private final int searched; // length from which on it may end
  private final boolean special;
  private final int logprobs;
  private int[] ids;
  private int length;
  private final List<TokenScore> scores = new ArrayList<>();
  private @Nullable Finish finish;

  /**
   * @param ends ids of tokens that end the text
   */
  Sample(
      Tokenizer tokenizer,
      BitSet ends,
      GenerateRequest request,
      int number,
      int[] prompt,
      AttentionResult attention) {
    this.tokenizer = tokenizer;
    this.sayable = tokenizer.ids();
    this.listener = request.listener;
    this.number = number;
    this.special = request.prompt.special;
    this.decoder = new StreamDecoder(tokenizer, special);
    this.stops = new StopStrings(request.stops);
    this.promptLength = request.prompt.lengthOf(prompt.length);
    this.logprobs = request.logprobs;
    drawnAs = request.firstSample + number;
    searched = prompt.length + request.minTokens;
    this.ends = ends;
    this.ids = prompt.clone();
    this.length = prompt.length;
    this.attention = attention;
    attention.tokens(prompt);
    for (int id : prompt) {
      seen.set(id);
    }
    decoder.skip(prompt);
    text.append(read(prompt));
  }

  /** A text that is only read. */
  Sample(Tokenizer tokenizer, GenerateRequest request, int[] ids) {
    this(tokenizer, NO_TOKENS, request, 0, ids, AttentionResult.NONE);
  }

  /** The text of the tokens behind the prompt that were there from the beginning. */
  private String read(int[] tokens) {
    StreamDecoder reading = new StreamDecoder(tokenizer, special);
    reading.skip(Arrays.copyOf(tokens, promptLength));
    StringBuilder known = new StringBuilder();
    for (int i = promptLength; i < tokens.length; i++) {
      known.append(reading.push(tokens[i]));
    }
    return known + reading.finish();
  }

  /** The number by which its tokens are drawn. */
  int drawnAs() {
    return drawnAs;
  }

  /** Tokens so far, the prompt's included. */
  int length() {
    return length;
  }

  int lastId() {
    return ids[length - 1];
  }

  int id(int at) {
    return ids[at];
  }

  int[] ids(int from, int to) {
    return Arrays.copyOfRange(ids, from, to);
  }

  boolean finished() {
    return finish != null;
  }

  /** The next token by {@code sampler}, from the logits of the newest. */
  int choose(Sampler sampler, float[] logits) {
    int[] text = sampler.countsTokens() ? ids(promptLength, length) : NO_IDS;
    BitSet banned = length < searched ? ends : NO_TOKENS;
    return sampler.next(logits, seen, text, banned, drawnAs, length);
  }

  /** Whether the listener or an interrupt ended it. */
  boolean interrupted() {
    return finish == Finish.INTERRUPTED;
  }

  /** Notes the score of the next token in order; {@code logits} are those before it, or null. */
  void note(int id, float @Nullable [] logits) {
    if (logprobs < 0 || logits == null) {
      scores.add(TokenScore.NONE);
      return;
    }
    TokenDistribution d = new TokenDistribution(logits, sayable);
    scores.add(new TokenScore(d.logprob(id), d.rank(id), d.top(logprobs)));
  }

  /** Natural log of the probability of the last token that was noted. */
  private double lastLogprob() {
    return scores.isEmpty() ? Double.NaN : scores.getLast().logprob;
  }

  /** Appends a token that the model wrote, and tells the listener what text it completes. */
  void accept(int id) {
    if (length == ids.length) {
      ids = Arrays.copyOf(ids, length + Math.max(16, length / 2));
    }
    ids[length++] = id;
    attention.tokens(id);
    seen.set(id);
    listener.token(number, id, lastLogprob());
    if (ends.get(id)) {
      end(Finish.EOS);
      return;
    }
    String piece = decoder.push(id);
    if (length > searched || piece.isEmpty()) {
      piece = stops.push(piece);
    }
    if (stops.stopped()) {
      finish = Finish.STOP;
    }
    emit(piece);
  }

  /** Ends the sample if it has not ended: incomplete characters and held-back text come out. */
  void end(Finish why) {
    if (finish == null) {
      finish = why;
      emit(stops.push(decoder.finish()) + stops.finish());
    }
  }

  private void emit(String piece) {
    if (piece.isEmpty() && tokenizer.whyNoText().isEmpty()) {
      return;
    }
    text.append(piece);
    if (!listener.text(number, piece)) {
      end(Finish.INTERRUPTED);
    }
  }

  Generation result(
      ModelInfo model, GenerateRequest request, int cropped, Generation.Timing timing) {
    AttentionResult kept = attention.first(length);
    return new Generation(
        model,
        request.sampling,
        number,
        text.toString(),
        promptLength,
        tokens(),
        finish == null ? Finish.LENGTH : finish,
        cropped,
        kept.maps(),
        kept.scores(),
        kept.statistics(),
        kept.heads(),
        kept.rollout(),
        timing);
  }

  List<Token> tokens() {
    int[] all = ids(0, length);
    List<String> labels = Labels.of(tokenizer, all);
    List<CharSpan> spans = CharSpan.of(tokenizer, all, special);
    List<Token> tokens = new ArrayList<>();
    for (int i = 0; i < length; i++) {
      TokenScore known = i < scores.size() ? scores.get(i) : TokenScore.NONE;
      tokens.add(
          new Token(
              all[i],
              tokenizer.raw(all[i]),
              labels.get(i),
              HexFormat.of().withUpperCase().formatHex(tokenizer.bytes(all[i])),
              spans.get(i).start(),
              spans.get(i).end(),
              tokenizer.isSpecial(all[i]),
              i >= promptLength,
              known.logprob(),
              known.rank(),
              Token.candidates(tokenizer, known.top())));
    }
    return tokens;
  }
}
