package dev.loupe.spark;

import static org.apache.spark.sql.functions.abs;
import static org.apache.spark.sql.functions.coalesce;
import static org.apache.spark.sql.functions.col;
import static org.apache.spark.sql.functions.count;
import static org.apache.spark.sql.functions.lit;
import static org.apache.spark.sql.functions.min;
import static org.apache.spark.sql.functions.min_by;
import static org.apache.spark.sql.functions.struct;
import static org.apache.spark.sql.functions.substring;
import static org.apache.spark.sql.functions.sum;
import static org.apache.spark.sql.functions.when;

import dev.loupe.attention.HeadScore;
import dev.loupe.corpus.CorpusReport;
import dev.loupe.corpus.CorpusReport.Corpus;
import dev.loupe.corpus.CorpusReport.Failure;
import dev.loupe.corpus.CorpusReport.Head;
import dev.loupe.corpus.CorpusReport.Place;
import dev.loupe.corpus.CorpusReport.Score;
import dev.loupe.corpus.CorpusReport.Window;
import dev.loupe.corpus.CorpusSummary;
import dev.loupe.corpus.ScoreSummary;
import java.util.ArrayList;
import java.util.EnumMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.api.java.function.Function;
import org.apache.spark.api.java.function.Function2;
import org.apache.spark.api.java.function.PairFunction;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.DecimalType;
import scala.Tuple2;

/**
 * Rows of {@link Results} to a report. Heads are one pass over all rows that keeps, in each task,
 * only summaries of heads; documents and failures are passes over a few columns. Sums are exact, so
 * that the report does not depend on how rows are spread over tasks.
 */
final class ReportJob {
  private static final int MOST_FAILURES = 20;
  private static final int EXAMPLES = 3;
  private static final int MOST_OF_ERROR = 500;
  private static final int HEADS = 1 << 16; // a layer has fewer

  /** For sums of ln p: decimal, as the order of terms must not count. */
  private static final DecimalType EXACT = DataTypes.createDecimalType(30, 12);

  private static final double MOST_LOG_PROB = 1e15; // fits

  private ReportJob() {}

  /**
   * The report of a run.
   *
   * @param rows all that it wrote, with at least the columns of {@link Results#SCHEMA} but edges
   * @param facts what the report says the run was, in order
   */
  static CorpusReport aggregate(Dataset<Row> rows, Map<String, Object> facts) {
    Corpus corpus = corpus(rows);
    return new CorpusReport(
        facts, corpus, corpus.failedWindows() == 0 ? List.of() : failures(rows), heads(rows));
  }

  /** One row of each window: what is of the whole window stands in those of all its heads. */
  private static Dataset<Row> windows(Dataset<Row> rows) {
    Column head = col(Results.LAYER).multiply(HEADS).plus(col(Results.HEAD));
    Row first = rows.agg(min(head)).first();
    Column whole = col(Results.LAYER).isNull();
    return rows.where(first.isNullAt(0) ? whole : whole.or(head.equalTo(first.getInt(0))));
  }

  private static Corpus corpus(Dataset<Row> rows) {
    Column read = col(Results.ERROR).isNull();
    Column scored =
        read.and(abs(col(Results.LOG_PROB)).lt(MOST_LOG_PROB)).and(col(Results.N_TOKENS).gt(1));
    Dataset<Row> documents =
        windows(rows)
            .groupBy(col(Results.DOC_ID))
            .agg(
                count(lit(1)),
                count(when(read, 1)).as("read"),
                coalesce(sum(when(read, col(Results.N_TOKENS))), lit(0L)),
                coalesce(sum(when(scored, col(Results.N_TOKENS).minus(1))), lit(0L)),
                coalesce(
                    sum(when(scored, col(Results.LOG_PROB).cast(EXACT))).cast(DataTypes.DoubleType),
                    lit(0.0)));
    return documents
        .javaRDD()
        .treeAggregate(
            new CorpusSummary(),
            (Function2<CorpusSummary, Row, CorpusSummary>)
                (all, row) -> {
                  long windows = row.getLong(1);
                  all.add(
                      row.getString(0),
                      windows,
                      windows - row.getLong(2),
                      row.getLong(3),
                      row.getLong(4),
                      row.getDouble(5));
                  return all;
                },
            (Function2<CorpusSummary, CorpusSummary, CorpusSummary>) CorpusSummary::merge)
        .corpus();
  }

  private static List<Failure> failures(Dataset<Row> rows) {
    Column place = struct(col(Results.DOC_ID), col(Results.WINDOW));
    List<Row> found =
        rows.where(col(Results.ERROR).isNotNull())
            .groupBy(substring(col(Results.ERROR), 1, MOST_OF_ERROR).as("error"))
            .agg(count(lit(1)).as("windows"), min_by(place, place, EXAMPLES))
            .orderBy(col("windows").desc(), col("error").asc())
            .limit(MOST_FAILURES)
            .collectAsList();
    List<Failure> failures = new ArrayList<>();
    for (Row row : found) {
      List<Row> examples = row.getList(2);
      failures.add(
          new Failure(
              row.getString(0),
              row.getLong(1),
              examples.stream()
                  .map(each -> new Place(each.getString(0), each.getInt(1)))
                  .toList()));
    }
    return failures;
  }

  private static List<Head> heads(Dataset<Row> rows) {
    HeadScore[] scores = HeadScore.values();
    List<Column> columns = new ArrayList<>();
    for (String name :
        List.of(Results.LAYER, Results.HEAD, Results.DOC_ID, Results.WINDOW, Results.N_TOKENS)) {
      columns.add(col(name));
    }
    int before = columns.size();
    for (HeadScore score : scores) {
      columns.add(col(score.key()));
    }
    return rows.where(col(Results.LAYER).isNotNull())
        .select(columns.toArray(Column[]::new))
        .javaRDD()
        .mapToPair(
            (PairFunction<Row, Integer, Row>)
                row -> new Tuple2<>(row.getInt(0) * HEADS + row.getInt(1), row))
        .aggregateByKey(
            new EnumMap<HeadScore, ScoreSummary>(HeadScore.class),
            (Function2<EnumMap<HeadScore, ScoreSummary>, Row, EnumMap<HeadScore, ScoreSummary>>)
                (head, row) -> {
                  for (int i = 0; i < scores.length; i++) {
                    double value =
                        row.isNullAt(before + i) ? Double.NaN : row.getDouble(before + i);
                    if (Double.isFinite(value)) {
                      head.computeIfAbsent(scores[i], _ -> new ScoreSummary())
                          .add(new Window(row.getString(2), row.getInt(3), row.getInt(4), value));
                    }
                  }
                  return head;
                },
            (Function2<
                    EnumMap<HeadScore, ScoreSummary>,
                    EnumMap<HeadScore, ScoreSummary>,
                    EnumMap<HeadScore, ScoreSummary>>)
                (one, other) -> {
                  other.forEach((score, its) -> one.merge(score, its, ScoreSummary::merge));
                  return one;
                })
        .map(
            (Function<Tuple2<Integer, EnumMap<HeadScore, ScoreSummary>>, Head>)
                pair -> {
                  EnumMap<HeadScore, Score> values = new EnumMap<>(HeadScore.class);
                  pair._2().forEach((score, its) -> values.put(score, its.score()));
                  return new Head(pair._1() / HEADS, pair._1() % HEADS, values);
                })
        .collect();
  }
}
