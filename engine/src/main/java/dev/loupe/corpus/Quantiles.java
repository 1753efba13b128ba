package dev.loupe.corpus;

import java.io.Serializable;

/**
 * What some values come to. A quantile is the smallest of the values that at least that part of
 * them do not exceed; among more than {@value Summary#EXACT} different values, it is within 0.2 %
 * of it.
 *
 * @param count how many, at least one
 * @param sd standard deviation of just these values: the root of the mean square difference
 */
public record Quantiles(
    long count,
    double mean,
    double sd,
    double min,
    double p5,
    double p25,
    double p50,
    double p75,
    double p95,
    double max)
    implements Serializable {}
