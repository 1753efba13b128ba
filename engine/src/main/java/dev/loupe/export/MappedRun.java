package dev.loupe.export;

import dev.loupe.attention.AttentionMaps;
import dev.loupe.attention.HeadRole;
import dev.loupe.generate.Generation;
import dev.loupe.generate.Token;
import dev.loupe.interpret.HeadSurvey;
import dev.loupe.model.ModelInfo;
import java.util.Arrays;
import java.util.List;
import java.util.Optional;
import java.util.stream.Collectors;
import org.jspecify.annotations.Nullable;

/**
 * A run whose maps and tokens are known to belong together.
 *
 * @param run all of it
 * @param maps its probabilities, over T tokens
 * @param scores its pre-softmax scores of the same layers, heads and tokens, if it kept them
 * @param tokens the T tokens that the maps are about: the run's last ones, all of them unless some
 *     slid out of the context
 * @param promptLength how many of {@code tokens} are the prompt's
 */
record MappedRun(
    Generation run,
    AttentionMaps maps,
    @Nullable AttentionMaps scores,
    List<Token> tokens,
    int promptLength) {

  /**
   * @throws IllegalStateException if the run kept no maps
   * @throws IllegalArgumentException if maps, scores and tokens do not belong together
   */
  static MappedRun of(Generation run) {
    AttentionMaps maps = run.attention();
    int slidOut = run.tokens().size() - maps.tokens();
    if (maps.tokens() < 1 || slidOut < 0) {
      throw new IllegalArgumentException(
          "maps over %d tokens of a run of %d tokens"
              .formatted(maps.tokens(), run.tokens().size()));
    }
    AttentionMaps scores = run.scores().orElse(null);
    if (scores != null
        && !(Arrays.equals(scores.layers(), maps.layers())
            && Arrays.equals(scores.heads(), maps.heads())
            && scores.tokens() == maps.tokens())) {
      throw new IllegalArgumentException(
          "scores of layers %s, heads %s, %d tokens beside maps of layers %s, heads %s, %d tokens"
              .formatted(
                  Arrays.toString(scores.layers()),
                  Arrays.toString(scores.heads()),
                  scores.tokens(),
                  Arrays.toString(maps.layers()),
                  Arrays.toString(maps.heads()),
                  maps.tokens()));
    }
    return new MappedRun(
        run,
        maps,
        scores,
        run.tokens().subList(slidOut, run.tokens().size()),
        Math.max(0, run.promptLength() - slidOut));
  }

  /** What a head does on this text, if the run kept scores of heads and they say so. */
  Optional<HeadRole> role(int layer, int head) {
    return run.headStatistics().flatMap(scores -> HeadSurvey.role(scores, layer, head));
  }

  ModelInfo model() {
    return run.model();
  }

  /**
   * The model's name for a picture: the end of its source. Pictures and pages are passed on, and
   * the folders before it are nobody's business.
   */
  String modelName() {
    String[] path = model().source().split("[/\\\\]+", 0);
    if (path.length == 0) {
      return model().source();
    }
    String last = path[path.length - 1];
    // "model.safetensors" says nothing without its folder
    return last.contains(".") && path.length > 1 && !path[path.length - 2].isEmpty()
        ? path[path.length - 2] + "/" + last
        : last;
  }

  /** For example {@code 33 tokens: 12 prompt, 21 generated}. */
  String lengths() {
    int generated = tokens.size() - promptLength;
    String all = tokens.size() == 1 ? "1 token" : tokens.size() + " tokens";
    return generated == 0
        ? all
        : "%s: %d prompt, %d generated".formatted(all, promptLength, generated);
  }

  /** For example {@code layer 2}, {@code layers 0-5} or {@code layers 1, 3}; ascending numbers. */
  static String numbered(String noun, int[] numbers) {
    if (numbers.length == 1) {
      return noun + " " + numbers[0];
    }
    int first = numbers[0];
    int last = numbers[numbers.length - 1];
    String list =
        last - first == numbers.length - 1
            ? first + "-" + last
            : Arrays.stream(numbers).mapToObj(String::valueOf).collect(Collectors.joining(", "));
    return noun + "s " + list;
  }
}
