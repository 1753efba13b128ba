import dev.loupe.Loupe;
import dev.loupe.attention.HeadScore;
import dev.loupe.generate.Prompt;
import dev.loupe.interpret.HeadSurvey;
import java.nio.file.Path;

/** Names the strongest head of each kind: java Heads.java MODEL TEXT. */
void main(String[] args) throws Exception {
  try (Loupe loupe = Loupe.open(Path.of(args[0]))) {
    HeadSurvey survey = loupe.heads(Prompt.text(args[1]));
    var config = loupe.info().config();
    for (HeadScore score : HeadScore.values()) {
      int best = 0; // layer * heads + head
      for (int i = 1; i < config.nLayer() * config.nHead(); i++) {
        double value = survey.score(score, i / config.nHead(), i % config.nHead());
        if (value > survey.score(score, best / config.nHead(), best % config.nHead())) {
          best = i;
        }
      }
      int layer = best / config.nHead();
      int head = best % config.nHead();
      IO.println("%s: head %d.%d, %.3f".formatted(score, layer, head, survey.score(score, layer, head)));
    }
  }
}
