package dev.loupe.export;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import dev.loupe.attention.HeadRole;
import dev.loupe.attention.HeadStatistics;
import dev.loupe.export.HeadTable.Column;
import dev.loupe.interpret.HeadSurvey;
import java.util.List;
import java.util.Optional;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Heads whose maps are made by hand, each with one habit. */
class HeadTableTest {
  private static final int L = 20;
  private static final int T = 2 * L + 1;

  /** What a head reads most, 0.9 of it, where it can; the rest it gives to itself. */
  private interface Habit {
    int key(int query);
  }

  private static final Habit[] HABITS = {
    query -> query - 1, // previous
    query -> query > L ? query - L : query / 2, // duplicate
    query -> query > L ? query - L + 1 : query / 2, // induction
    query -> 0, // first
    query -> query, // self
    query -> query / 2 // nothing in particular
  };

  /** Layer 7, a head for each habit. */
  private static HeadStatistics planted(boolean repeated, double share) {
    int[] layer = {7};
    int[] heads = {0, 1, 2, 3, 4, 5};
    HeadStatistics all =
        repeated
            ? HeadStatistics.ofRepeated(L, layer, heads, true)
            : HeadStatistics.ofText(layer, heads, true);
    for (int i = 0; i < T; i++) {
      all.tokens(i == 0 ? 99 : (i - 1) % L);
    }
    for (int head : heads) {
      for (int query = 0; query < T; query++) {
        float[] row = new float[query + 1];
        row[Math.max(0, HABITS[head].key(query))] += (float) share;
        for (int key = 0; key <= query; key++) {
          row[key] += (float) ((1 - share) / (query + 1));
        }
        all.value(7, head, query, 1);
        all.spread(7, head, 0, query, new float[] {0.25f * head, head});
        all.row(7, head, 0, query, row);
      }
    }
    return all;
  }

  private static HeadSurvey survey(boolean withText, double share) {
    return new HeadSurvey(
        Runs.random(new int[] {0}, new int[] {0}, 1, false, "a").model(),
        withText ? Optional.of(planted(false, share)) : Optional.empty(),
        withText ? 1 : 0,
        withText ? 3 : 0,
        planted(true, share));
  }

  @Test
  void plantedHabitsAreRecognised() {
    for (boolean withText : new boolean[] {true, false}) {
      HeadSurvey survey = survey(withText, 0.9);
      assertEquals(Optional.of(HeadRole.PREVIOUS_TOKEN), survey.role(7, 0));
      assertEquals(Optional.of(HeadRole.DUPLICATE_TOKEN), survey.role(7, 1));
      assertEquals(Optional.of(HeadRole.INDUCTION), survey.role(7, 2));
      assertEquals(Optional.of(HeadRole.FIRST_TOKEN), survey.role(7, 3));
      assertEquals(Optional.of(HeadRole.SELF), survey.role(7, 4));
      assertEquals(Optional.empty(), survey.role(7, 5));
    }
    for (int head = 0; head < 6; head++) {
      assertEquals(Optional.empty(), survey(true, 0.2).role(7, head), "too weak");
    }
  }

  @Test
  void tokensThatAreEqualAreRecognisedInAText() {
    HeadStatistics text = planted(false, 0.9);
    assertTrue(text.score(HeadRole.DUPLICATE_TOKEN.score(), 7, 1) > 0.9);
    assertTrue(text.score(HeadRole.INDUCTION.score(), 7, 2) > 0.9);
  }

  @Test
  void theTableSaysWhereItsNumbersAreFrom() {
    List<String> lines = HeadTable.render(survey(true, 0.9), Column.INDUCTION, 80).lines().toList();
    assertEquals(
        "induction, prev, dupl: on repeated random tokens (10 sequences of 20, twice)",
        lines.get(0));
    assertEquals("the other columns: on this text, 41 tokens in 1 window of 3", lines.get(1));
    assertEquals(
        "head  role                induction  prev   dupl  first  self  entropy  dist",
        lines.get(2));
    // 0.9 and its part of the rest of 20 queries of a diagonal of 22, and little of the other two
    assertTrue(lines.get(3).startsWith("7.2   induction                0.82  "), lines.get(3));
    assertEquals(9, lines.size(), "two lines about it, a heading, six heads, no complaint");
    String none = HeadTable.render(survey(false, 0.9), Column.HEAD, 80);
    assertTrue(none.startsWith("all columns: on repeated random tokens"), none);
    assertEquals("7.0   previous token", none.lines().toList().get(2).substring(0, 20));
  }

  @Test
  void weakHeadsAreSaidToBeWeak() {
    String table = HeadTable.render(survey(true, 0.2), Column.FIRST, 80);
    for (String line :
        List.of(
            "No previous token head above 0.4; strongest 7.0: 0.27.",
            "No first token (sink) head above 0.4; strongest 7.3: 0.27.")) {
      assertTrue(table.contains(line + "\n"), table);
    }
    assertEquals(5, table.lines().filter(line -> line.startsWith("No ")).count());
    assertTrue(table.contains("\n7.3   -  "), table);
  }

  @ParameterizedTest
  @ValueSource(ints = {20, 30, 40, 60, 80, 120})
  void fitsTheTerminal(int columns) {
    for (Column by : Column.values()) {
      String table = HeadTable.render(survey(true, 0.9), by, columns);
      for (String line : table.lines().toList()) {
        assertTrue(TerminalText.width(line) <= columns, line);
      }
      if (by != Column.HEAD && columns >= 30) {
        assertTrue(table.contains(by.title()), table);
      }
    }
    boolean wide = HeadTable.render(survey(true, 0.9), Column.HEAD, columns).contains(" norm");
    assertEquals(columns >= 120, wide);
  }

  @Test
  void theLargestComesFirst() {
    HeadSurvey survey = survey(true, 0.9);
    assertEquals("7.0", HeadTable.sorted(survey, Column.PREV).getFirst().toString());
    assertEquals("7.1", HeadTable.sorted(survey, Column.DUPL).getFirst().toString());
    assertEquals("7.3", HeadTable.sorted(survey, Column.FIRST).getFirst().toString());
    assertEquals("7.4", HeadTable.sorted(survey, Column.SELF).getFirst().toString());
    assertEquals("7.5", HeadTable.sorted(survey, Column.ENTROPY).getFirst().toString());
    assertEquals("7.5", HeadTable.sorted(survey, Column.DIST).getFirst().toString());
    assertEquals("7.0", HeadTable.sorted(survey, Column.HEAD).getFirst().toString());
    HeadStatistics none = HeadStatistics.ofText(new int[] {7}, new int[] {0, 1}, true);
    HeadSurvey empty = new HeadSurvey(survey.model(), Optional.empty(), 0, 0, none);
    assertEquals(2, HeadTable.sorted(empty, Column.SELF).size());
    assertTrue(HeadTable.render(empty, Column.SELF, 80).contains("7.1   -"), "NaN shows as -");
  }

  @Test
  void programsGetAllOfIt() {
    HeadSurvey survey = survey(true, 0.9);
    String text = HeadSurveyExport.json(survey, Column.SELF);
    assertTrue(text.endsWith("}\n"));
    JsonObject json = JsonParser.parseString(text).getAsJsonObject();
    assertEquals("loupe-heads/1", json.get("schema").getAsString());
    assertEquals("models/demo", json.getAsJsonObject("model").get("source").getAsString());
    assertEquals("{\"tokens\":41,\"windows\":3,\"windows_read\":1}", json.get("text").toString());
    assertEquals("{\"sequences\":10,\"length\":20}", json.get("repeated_tokens").toString());
    assertEquals(0.4, json.get("role_threshold").getAsDouble());
    JsonObject first = json.getAsJsonArray("heads").get(0).getAsJsonObject();
    assertEquals(4, first.get("head").getAsInt());
    assertEquals("self", first.get("role").getAsString());
    assertEquals(8, first.getAsJsonObject("on_text").getAsJsonArray("edges").size());
    assertTrue(
        first.getAsJsonObject("on_repeated_tokens").getAsJsonObject("scores").has("induction"));
    JsonObject last = json.getAsJsonArray("heads").get(5).getAsJsonObject();
    assertTrue(json.toString().contains("\"role\":\"first_token\""));
    assertEquals(7, last.get("layer").getAsInt());
    JsonObject bare =
        JsonParser.parseString(HeadSurveyExport.json(survey(false, 0.2), Column.HEAD))
            .getAsJsonObject();
    JsonObject weak = bare.getAsJsonArray("heads").get(0).getAsJsonObject();
    assertTrue(weak.get("role").isJsonNull() && weak.get("on_text").isJsonNull());
  }

  @Test
  void aLineOfNumbersForEachHead() {
    List<String> lines = HeadSurveyExport.csv(survey(true, 0.9), Column.HEAD).lines().toList();
    assertEquals(7, lines.size());
    assertTrue(lines.getFirst().startsWith("layer,head,role,text_entropy,"));
    assertTrue(lines.getFirst().endsWith(",repeated_first_token_by_norm"));
    String[] names = lines.getFirst().split(",", -1);
    String[] third = lines.get(3).split(",", -1);
    assertEquals(23, names.length);
    assertEquals(23, third.length);
    assertEquals("7,2,induction,0.5,", lines.get(3).substring(0, 18));
    int induction = List.of(names).indexOf("repeated_induction");
    assertEquals(0.82, Double.parseDouble(third[induction]), 0.01);
    List<String> bare = HeadSurveyExport.csv(survey(false, 0.2), Column.HEAD).lines().toList();
    assertTrue(bare.get(1).startsWith("7,0,,,,,,,,,,,,0.0,"), bare.get(1));
  }
}
