package dev.loupe.export;

import com.google.gson.stream.JsonWriter;
import dev.loupe.attention.HeadRole;
import dev.loupe.attention.HeadScore;
import dev.loupe.attention.HeadStatistics;
import dev.loupe.export.HeadTable.Column;
import dev.loupe.export.HeadTable.Place;
import dev.loupe.interpret.HeadSurvey;
import java.io.IOException;
import java.io.StringWriter;
import java.io.UncheckedIOException;
import java.util.Optional;
import org.jspecify.annotations.Nullable;

/** What each head does, for programs. */
public final class HeadSurveyExport {
  private HeadSurveyExport() {}

  /**
   * One object on one line, schema {@code loupe-heads/1}: of each head its role, and scores and
   * edges {@code on_text} (null without a text) and {@code on_repeated_tokens}. What is not there
   * is null, never NaN.
   */
  public static String json(HeadSurvey survey, Column by) {
    StringWriter text = new StringWriter();
    try (JsonWriter json = new JsonWriter(text)) {
      json.setHtmlSafe(false);
      json.beginObject();
      json.name("schema").value("loupe-heads/1");
      RunJson.model(json, survey.model());
      json.name("text").beginObject();
      json.name("tokens").value(survey.onText().map(HeadStatistics::tokens).orElse(0));
      json.name("windows").value(survey.windows());
      json.name("windows_read").value(survey.windowsRead());
      json.endObject();
      json.name("repeated_tokens").beginObject();
      json.name("sequences").value(HeadSurvey.SEQUENCES);
      json.name("length").value(survey.onRepeated().repeated());
      json.endObject();
      json.name("role_threshold").value(HeadRole.THRESHOLD);
      json.name("heads").beginArray();
      for (Place place : HeadTable.sorted(survey, by)) {
        json.beginObject();
        json.name("layer").value(place.layer());
        json.name("head").value(place.head());
        json.name("role").value(role(survey, place));
        statistics(json, "on_text", survey.onText(), place);
        statistics(json, "on_repeated_tokens", Optional.of(survey.onRepeated()), place);
        json.endObject();
      }
      json.endArray();
      json.endObject();
    } catch (IOException e) { // a StringWriter throws none
      throw new UncheckedIOException(e);
    }
    return text.append('\n').toString();
  }

  private static @Nullable String role(HeadSurvey survey, Place place) {
    return survey.role(place.layer(), place.head()).map(HeadRole::key).orElse(null);
  }

  private static void statistics(
      JsonWriter json, String name, Optional<HeadStatistics> all, Place place) throws IOException {
    json.name(name);
    if (all.isEmpty()) {
      json.nullValue();
      return;
    }
    json.beginObject();
    RunJson.head(json, all.get(), place.layer(), place.head());
    json.endObject();
  }

  /**
   * {@code layer,head,role,text_entropy,...,repeated_entropy,...}: a line a head, nothing where
   * there is no score.
   */
  public static String csv(HeadSurvey survey, Column by) {
    StringBuilder out = new StringBuilder("layer,head,role");
    for (String on : new String[] {"text_", "repeated_"}) {
      for (HeadScore score : HeadScore.values()) {
        out.append(',').append(on).append(score.key());
      }
    }
    out.append('\n');
    for (Place place : HeadTable.sorted(survey, by)) {
      out.append(place.layer()).append(',').append(place.head()).append(',');
      out.append(survey.role(place.layer(), place.head()).map(HeadRole::key).orElse(""));
      for (HeadScore score : HeadScore.values()) {
        out.append(',');
        survey
            .onText()
            .map(all -> all.score(score, place.layer(), place.head()))
            .ifPresent(value -> out.append(StatisticsExport.number(value)));
      }
      for (HeadScore score : HeadScore.values()) {
        double value = survey.onRepeated().score(score, place.layer(), place.head());
        out.append(',').append(StatisticsExport.number(value));
      }
      out.append('\n');
    }
    return out.toString();
  }
}
