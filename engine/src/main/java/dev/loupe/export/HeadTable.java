package dev.loupe.export;

import dev.loupe.attention.HeadRole;
import dev.loupe.attention.HeadScore;
import dev.loupe.attention.HeadStatistics;
import dev.loupe.interpret.HeadSurvey;
import dev.loupe.text.Count;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Locale;
import java.util.Optional;
import java.util.stream.Collectors;

/** What each head does, as a table for a terminal: a line a head, sorted by one column. */
public final class HeadTable {
  /** What is shown of a head, and what heads can be sorted by: the largest first. */
  public enum Column {
    /** Layer and head, in their order. */
    HEAD("head", Optional.empty(), 0),
    INDUCTION("induction", Optional.of(HeadScore.INDUCTION), 1),
    PREV("prev", Optional.of(HeadScore.PREVIOUS_TOKEN), 2),
    DUPL("dupl", Optional.of(HeadScore.DUPLICATE_TOKEN), 4),
    FIRST("first", Optional.of(HeadScore.FIRST_TOKEN), 3),
    SELF("self", Optional.of(HeadScore.SELF), 5),
    ENTROPY("entropy", Optional.of(HeadScore.ENTROPY), 6),
    DIST("dist", Optional.of(HeadScore.MEAN_DISTANCE), 7),
    NORM("norm", Optional.of(HeadScore.WEIGHTED_NORM), 8);

    private final String title;
    private final Optional<HeadScore> score;
    private final int rank; // the higher, the sooner a narrow terminal goes without

    Column(String title, Optional<HeadScore> score, int rank) {
      this.title = title;
      this.score = score;
      this.rank = rank;
    }

    /** What it is called: its heading, and its name on the command line. */
    public String title() {
      return title;
    }
  }

  /** One head of the model. */
  record Place(int layer, int head) {
    @Override
    public String toString() {
      return layer + "." + head;
    }
  }

  private HeadTable() {}

  /** All heads, those with most of {@code by} first; those without it last. */
  static List<Place> sorted(HeadSurvey survey, Column by) {
    List<Place> places = new ArrayList<>();
    for (int layer : survey.onRepeated().layers()) {
      for (int head : survey.onRepeated().heads()) {
        places.add(new Place(layer, head));
      }
    }
    if (by.score.isPresent()) {
      HeadScore score = by.score.get();
      // NaN, which no comparison is less than, comes last
      places.sort(Comparator.comparingDouble(p -> -survey.score(score, p.layer(), p.head())));
    }
    return places;
  }

  /**
   * The table, what it is about, and which roles no head has.
   *
   * @param columns the terminal's width; where it is narrow, fewer scores are shown
   * @return lines, each ended by a line feed
   */
  public static String render(HeadSurvey survey, Column by, int columns) {
    List<String> lines = new ArrayList<>();
    for (String line : about(survey)) {
      lines.addAll(TextTable.wrap("", line, columns));
    }
    TextTable<Place> table = new TextTable<>();
    table.column(
        "head  role",
        0,
        p ->
            "%-5s %s"
                .formatted(p, survey.role(p.layer(), p.head()).map(HeadRole::label).orElse("-")));
    for (Column column : Column.values()) {
      column.score.ifPresent(
          score ->
              table.column(
                  column.title,
                  column == by ? 0 : column.rank,
                  p -> number(survey.score(score, p.layer(), p.head()))));
    }
    lines.addAll(table.lines(sorted(survey, by), p -> "", columns));
    for (HeadRole role : HeadRole.values()) {
      nobody(survey, role).ifPresent(line -> lines.addAll(TextTable.wrap("", line, columns)));
    }
    return lines.stream().map(line -> line + "\n").collect(Collectors.joining());
  }

  /** What the columns were measured on. */
  private static List<String> about(HeadSurvey survey) {
    String repeated =
        "repeated random tokens (%d sequences of %d, twice)"
            .formatted(HeadSurvey.SEQUENCES, survey.onRepeated().repeated());
    int tokens = survey.onText().map(HeadStatistics::tokens).orElse(0);
    if (tokens >= HeadSurvey.SHORTEST_TEXT) {
      return List.of(
          "induction, prev, dupl: on " + repeated,
          "the other columns: on this text, %s in %s%s"
              .formatted(
                  Count.of(tokens, "token"),
                  Count.of(survey.windowsRead(), "window"),
                  survey.windowsRead() < survey.windows() ? " of " + survey.windows() : ""));
    }
    List<String> lines = new ArrayList<>(List.of("all columns: on " + repeated));
    if (tokens > 0) {
      lines.add(
          "the text has %s, too few to say what a head does: give %d or more"
              .formatted(Count.of(tokens, "token"), HeadSurvey.SHORTEST_TEXT));
    }
    return lines;
  }

  /** Says so where no head has a role. */
  private static Optional<String> nobody(HeadSurvey survey, HeadRole role) {
    List<Place> most =
        sorted(survey, Column.HEAD).stream()
            .filter(p -> !Double.isNaN(survey.score(role.score(), p.layer(), p.head())))
            .sorted(
                Comparator.comparingDouble(p -> -survey.score(role.score(), p.layer(), p.head())))
            .limit(1)
            .toList();
    if (most.isEmpty()) {
      return Optional.empty();
    }
    Place p = most.getFirst();
    double score = survey.score(role.score(), p.layer(), p.head());
    return score > HeadRole.THRESHOLD
        ? Optional.empty()
        : Optional.of(
            "No %s head above %s; strongest %s: %s."
                .formatted(role.label(), HeadRole.THRESHOLD, p, number(score)));
  }

  /** Two places, and never 0.00 for what is more than nothing; - where there is none. */
  private static String number(double score) {
    if (Double.isNaN(score)) {
      return "-";
    }
    return score > 0 && score < 0.005 ? "<0.01" : String.format(Locale.ROOT, "%.2f", score);
  }
}
