package dev.loupe;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.loupe.generate.GenerateRequest;
import dev.loupe.generate.Generation;
import dev.loupe.generate.Generation.Finish;
import dev.loupe.generate.Scheduler;
import dev.loupe.generate.Token;
import dev.loupe.model.Golden;
import dev.loupe.sampling.Sampling;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.function.Function;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Where a text ends: at a full context, at tokens, at strings; by a run alone and in a batch. */
class TextEndsTest {
  private static Loupe loupe;
  private static Scheduler scheduler;

  @BeforeAll
  static void open() throws Exception {
    loupe = Loupe.open(Golden.DEMO_MODEL, Options.defaults().backend(Backend.CPU).threads(2));
    scheduler = loupe.scheduler(3);
  }

  @AfterAll
  static void close() {
    scheduler.close();
    loupe.close();
  }

  private static List<Generation> run(boolean batched, GenerateRequest request) {
    return batched ? scheduler.run(request) : loupe.run(request);
  }

  private static int[] ids(Generation run) {
    return run.tokens().stream().mapToInt(Token::id).toArray();
  }

  private static int[] full() {
    int[] full = new int[loupe.info().config().nPositions()];
    Arrays.setAll(full, i -> 7 * i % 1000);
    return full;
  }

  @ParameterizedTest
  @ValueSource(booleans = {false, true})
  void theLastTokenNeedsNoPosition(boolean batched) {
    int[] full = full();
    for (int samples : List.of(1, 5)) {
      GenerateRequest request = GenerateRequest.ids(full).tokens(1).samples(samples).logprobs(1);
      for (Generation run : run(batched, request.sampling(Sampling.seeded(3)))) {
        assertEquals(full.length + 1, run.tokens().size());
        assertTrue(run.tokens().getLast().logprob() < 0);
        assertEquals(Finish.LENGTH, run.finish());
      }
    }
    GenerateRequest open = GenerateRequest.ids(full).sampling(Sampling.greedy());
    assertEquals(full.length + 1, run(batched, open).getFirst().tokens().size(), "by default");
    int[] part = Arrays.copyOf(full, full.length - 9);
    GenerateRequest ten =
        GenerateRequest.ids(part).tokens(10).samples(4).sampling(Sampling.seeded(1));
    GenerateRequest nine =
        GenerateRequest.ids(part).tokens(9).samples(4).sampling(Sampling.seeded(1));
    List<Generation> longer = run(batched, ten);
    List<Generation> shorter = run(batched, nine);
    for (int s = 0; s < 4; s++) {
      assertEquals(full.length + 1, longer.get(s).tokens().size());
      assertArrayEquals(ids(shorter.get(s)), Arrays.copyOf(ids(longer.get(s)), full.length));
    }
    assertThrows(
        IllegalArgumentException.class, () -> run(batched, GenerateRequest.ids(part).tokens(11)));
  }

  @ParameterizedTest
  @ValueSource(booleans = {false, true})
  void theSlidingContextIsAsItWas(boolean batched) {
    int[] part = Arrays.copyOf(full(), full().length - 1);
    GenerateRequest request =
        GenerateRequest.ids(part).tokens(5).slide(true).sampling(Sampling.greedy());
    Generation run = run(batched, request).getFirst();
    assertEquals(part.length + 5, run.tokens().size());
    assertTrue(run.cropped() > 0, "three of the five had to be read");
    Generation two = run(batched, request.tokens(2)).getFirst();
    assertEquals(0, two.cropped(), "none beyond the context was read");
    assertArrayEquals(ids(two), Arrays.copyOf(ids(run), part.length + 2));
  }

  @ParameterizedTest
  @ValueSource(booleans = {false, true})
  void drawsAreCountedOn(boolean batched) {
    Function<Integer, GenerateRequest> samples =
        n -> GenerateRequest.text("ROMEO:").tokens(20).samples(n).sampling(Sampling.seeded(4));
    List<Generation> four = run(batched, samples.apply(4));
    List<Generation> two = run(batched, samples.apply(2).firstSample(2));
    for (int s = 0; s < 2; s++) {
      assertEquals(s, two.get(s).sample());
      assertEquals(four.get(2 + s).text(), two.get(s).text());
    }
    assertThrows(IllegalArgumentException.class, () -> GenerateRequest.text("").firstSample(-1));
  }

  /** A request like that of {@link #plain}, which would write that text. */
  private static GenerateRequest same() {
    return GenerateRequest.text("ROMEO:").tokens(40).sampling(Sampling.seeded(6)).logprobs(0);
  }

  private static Generation plain() {
    return loupe.run(same()).getFirst();
  }

  private static int firstOf(Generation run, int id) {
    int[] all = ids(run);
    for (int i = run.promptLength(); i < all.length; i++) {
      if (all[i] == id) {
        return i;
      }
    }
    throw new AssertionError("it is there");
  }

  @ParameterizedTest
  @ValueSource(booleans = {false, true})
  void aTextEndsAtStopTokens(boolean batched) {
    Generation plain = plain();
    int id = ids(plain)[plain.promptLength() + 12];
    int at = firstOf(plain, id);
    Generation run = run(batched, same().stopTokens(Set.of(1000, id))).getFirst();
    assertEquals(Finish.EOS, run.finish());
    assertEquals(plain.tokens().subList(0, at), run.tokens().subList(0, at));
    assertEquals(at + 1, run.tokens().size(), "it counts as written");
    assertEquals(
        loupe.tokenizer().decode(Arrays.copyOfRange(ids(plain), plain.promptLength(), at)),
        run.text());
    assertThrows(
        IllegalArgumentException.class, () -> run(batched, same().stopTokens(Set.of(1024))));
  }

  @ParameterizedTest
  @ValueSource(booleans = {false, true})
  void atLeastSoManyAreWritten(boolean batched) {
    Generation plain = plain();
    int start = plain.promptLength();
    int id = ids(plain)[start + 3];
    int first = firstOf(plain, id) - start; // tokens before it
    Generation run = run(batched, same().stopTokens(Set.of(id)).minTokens(first + 2)).getFirst();
    assertTrue(run.tokens().size() >= start + first + 2, run.text());
    for (int i = start; i < start + first + 2; i++) {
      assertFalse(ids(run)[i] == id, "not chosen before, at " + i);
    }
    assertArrayEquals(
        Arrays.copyOf(ids(plain), start + first), Arrays.copyOf(ids(run), start + first));
    Generation exact = run(batched, same().stopTokens(Set.of(id)).minTokens(first)).getFirst();
    assertEquals(start + first + 1, exact.tokens().size(), "chosen once there are enough");
    Set<Integer> all = new HashSet<>();
    loupe.tokenizer().ids().stream().forEach(all::add);
    assertThrows(
        IllegalArgumentException.class,
        () -> run(batched, same().stopTokens(all).minTokens(1)),
        "nothing could be chosen");
  }

  @ParameterizedTest
  @ValueSource(booleans = {false, true})
  void stopStringsAreLookedForOnceThereAreEnough(boolean batched) {
    Generation plain = plain();
    String stop = plain.text().substring(2, 3);
    Generation early = run(batched, same().stops(List.of(stop))).getFirst();
    assertEquals(Finish.STOP, early.finish());
    Generation run = run(batched, same().stops(List.of(stop)).minTokens(15)).getFirst();
    assertTrue(run.tokens().size() > plain.promptLength() + 15);
    assertTrue(run.text().startsWith(early.text() + stop), run.text());
    assertTrue(plain.text().startsWith(run.text()), run.text());
  }

  @ParameterizedTest
  @ValueSource(booleans = {false, true})
  void anEndOfTextTokenCanBeIgnored(boolean batched, @TempDir Path folder) throws Exception {
    GenerateRequest request = GenerateRequest.text("ROMEO:").tokens(20).sampling(Sampling.greedy());
    Generation plain = loupe.run(request).getFirst();
    int start = plain.promptLength();
    int end = ids(plain)[start + 5];
    int first = firstOf(plain, end);
    try (Loupe ends = TextEnds.demoThatEndsAt(end, folder);
        Scheduler shared = ends.scheduler(2)) {
      Function<GenerateRequest, Generation> run =
          asked -> (batched ? shared.run(asked) : ends.run(asked)).getFirst();
      Generation ended = run.apply(request);
      assertEquals(Finish.EOS, ended.finish());
      assertEquals(first + 1, ended.tokens().size());
      Generation on = run.apply(request.ignoreEos(true));
      assertEquals(Finish.LENGTH, on.finish());
      assertArrayEquals(ids(plain), ids(on));
      assertEquals(plain.text(), on.text());
      Generation stopped = run.apply(request.stopTokens(Set.of(end)));
      assertEquals(first + 1, stopped.tokens().size(), "a stop token is none that is ignored");
      request.ignoreEos(false).stopTokens(Set.of()).minTokens(20);
      Generation least = run.apply(request);
      assertEquals(start + 20, least.tokens().size());
      assertFalse(Arrays.stream(ids(least), start, start + 20).anyMatch(id -> id == end));
    }
  }
}
