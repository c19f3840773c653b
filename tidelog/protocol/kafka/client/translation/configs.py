"""DescribeConfigs, IncrementalAlterConfigs, and AlterConfigs, which replaces all settings of a resource."""

from __future__ import annotations

from tidelog.protocol import admin_messages as admin
from tidelog.protocol.kafka.client.translation.translation import Translation, always
from tidelog.protocol.kafka.messages import configs as kafka
from tidelog.protocol.kafka.schema import Versions

#: All versions of DescribeConfigs, and those that have the documentation.
_VALUES, _DOCUMENTATION = Versions(1, 4), Versions(3, 4)


def _describe_versions(request: admin.DescribeConfigsRequest) -> Versions:
    return _DOCUMENTATION if request.include_documentation else _VALUES


def _write_describe(request: admin.DescribeConfigsRequest, version: int) -> kafka.DescribeConfigsRequest:
    return kafka.DescribeConfigsRequest(
        resources=tuple(
            kafka.DescribeConfigsResource(
                resource_type=each.resource_type, resource_name=each.resource_name, configuration_keys=each.keys
            )
            for each in request.resources
        ),
        include_synonyms=request.include_synonyms,
        include_documentation=request.include_documentation,
    )


def _read_describe(
    response: kafka.DescribeConfigsResponse, request: admin.DescribeConfigsRequest, version: int
) -> admin.DescribeConfigsResponse:
    return admin.DescribeConfigsResponse(
        tuple(
            admin.DescribedConfigs(
                each.resource_type,
                each.resource_name,
                each.error_code,
                each.error_message,
                tuple(map(_entry, each.configs)),
            )
            for each in response.results
        )
    )


def _entry(entry: kafka.DescribeConfigsResourceResult) -> admin.ConfigEntry:
    return admin.ConfigEntry(
        entry.name,
        entry.value,
        entry.config_source,
        entry.config_type,
        entry.read_only,
        entry.is_sensitive,
        tuple(admin.ConfigSynonym(each.name, each.value, each.source) for each in entry.synonyms),
        entry.documentation or None,
    )


DESCRIBE_CONFIGS = Translation(kafka.DescribeConfigsRequest, _describe_versions, _write_describe, _read_describe)


def _write_alter(request: admin.IncrementalAlterConfigsRequest, version: int) -> kafka.IncrementalAlterConfigsRequest:
    return kafka.IncrementalAlterConfigsRequest(
        resources=tuple(
            kafka.IncrementalAlterConfigsResource(
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
                configs=tuple(
                    kafka.IncrementalAlterableConfig(name=each.name, config_operation=each.operation, value=each.value)
                    for each in resource.changes
                ),
            )
            for resource in request.resources
        ),
        validate_only=request.validate_only,
    )


def _read_alter(
    response: kafka.IncrementalAlterConfigsResponse, request: admin.IncrementalAlterConfigsRequest, version: int
) -> admin.IncrementalAlterConfigsResponse:
    return admin.IncrementalAlterConfigsResponse(_altered(response))


INCREMENTAL_ALTER_CONFIGS = Translation(kafka.IncrementalAlterConfigsRequest, always(0, 1), _write_alter, _read_alter)


def _write_replace(request: admin.AlterConfigsRequest, version: int) -> kafka.AlterConfigsRequest:
    return kafka.AlterConfigsRequest(
        resources=tuple(
            kafka.AlterConfigsResource(
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
                configs=tuple(
                    kafka.AlterableConfig(name=name, value=value) for name, value in resource.configs.items()
                ),
            )
            for resource in request.resources
        ),
        validate_only=request.validate_only,
    )


def _read_replace(
    response: kafka.AlterConfigsResponse, request: admin.AlterConfigsRequest, version: int
) -> admin.AlterConfigsResponse:
    return admin.AlterConfigsResponse(_altered(response))


ALTER_CONFIGS = Translation(kafka.AlterConfigsRequest, always(0, 2), _write_replace, _read_replace)


def _altered(
    response: kafka.AlterConfigsResponse | kafka.IncrementalAlterConfigsResponse,
) -> tuple[admin.AlteredConfigs, ...]:
    return tuple(
        admin.AlteredConfigs(each.resource_type, each.resource_name, each.error_code, each.error_message)
        for each in response.responses
    )
